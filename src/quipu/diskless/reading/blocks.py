"""`Block`: batches of one log that follow each other, checked and ready to be sent.

Batches are stored as they were produced.  When their bytes arrive, they are copied once; base
offset and leader epoch are set in the copy, which Kafka's checksum does not cover.  After that a
read of a block takes two bisections and one slice, whatever the number of batches.

Invariant
    diskless.R4  a block is made only of batches that fill their bytes and take just the offsets
                 that the control plane gave them, each with the checksum of its header
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quipu.diskless.errors import CorruptObject
from quipu.diskless.values import LEADER_EPOCH, BatchRun
from quipu.model.ids import Offset
from quipu.runtime.objects.store import Buffer
from quipu.wire.record_batch import CRC_START, HEADER_SIZE, LENGTH_START, MAGIC

_HEAD: Final = Struct(">qiibI2xi")  # up to the last offset delta
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_EPOCH_POSITION: Final = 12


class BlockRead(NamedTuple):
    """Batches of a block, as they are sent."""

    buffer: memoryview
    end_offset: Offset  # of the record after the last one


class Block:
    """Consecutive batches with their offsets set."""

    __slots__ = ("_data", "_end_offsets", "_ends", "base_offset", "end_offset")

    def __init__(
        self, data: memoryview, base_offset: Offset, ends: list[int], end_offsets: list[int]
    ) -> None:
        self._data = data
        self._ends = ends  # positions after each batch
        self._end_offsets = end_offsets  # of the record after each batch
        self.base_offset = base_offset
        self.end_offset = Offset(end_offsets[-1])

    @property
    def size(self) -> int:
        """Bytes of its batches."""
        return len(self._data)

    @property
    def count(self) -> int:
        """How many batches it has."""
        return len(self._ends)

    def read(self, offset: Offset, max_bytes: int, *, min_one: bool) -> BlockRead | None:
        """Batches from the one that holds `offset` on; None if `max_bytes` is too small for one.

        With `min_one` the first may be larger.
        """
        ends = self._ends
        first = bisect_right(self._end_offsets, offset)
        start = ends[first - 1] if first else 0
        stop = bisect_right(ends, start + max_bytes, lo=first)
        if stop == first:
            if not min_one:
                return None
            stop += 1
        return BlockRead(self._data[start : ends[stop - 1]], Offset(self._end_offsets[stop - 1]))

    def batches_from(self, offset: Offset) -> memoryview:
        """The batches from the one that holds `offset` on."""
        first = bisect_right(self._end_offsets, offset)
        return self._data[self._ends[first - 1] if first else 0:]


def block_of(data: Buffer, run: BatchRun, leader_epoch: int = LEADER_EPOCH) -> Block:
    """The batches in the first bytes of a run; raises `CorruptObject`.

    A batch whose end is missing is left; if it is the first, the bytes are too few.
    """
    is_whole = len(data) == run.size
    copy = bytearray(data)
    view = memoryview(copy)
    size, position, offset = len(copy), 0, run.base_offset
    ends: list[int] = []
    end_offsets: list[int] = []
    unpack, set_offset, set_epoch = _HEAD.unpack_from, _OFFSET.pack_into, _EPOCH.pack_into
    while size - position >= HEADER_SIZE:
        _, length, _, magic, crc, last_delta = unpack(copy, position)
        end = position + LENGTH_START + length
        if magic != MAGIC or last_delta < 0 or length < HEADER_SIZE - LENGTH_START:
            raise _corrupt(run, position, "is no batch")
        if end > size:
            break
        if crc32c(view[position + CRC_START : end]) != crc:  # diskless.R4
            raise _corrupt(run, position, "has a bad checksum")
        set_offset(copy, position, offset)
        set_epoch(copy, position + _EPOCH_POSITION, leader_epoch)
        offset += last_delta + 1
        ends.append(end)
        end_offsets.append(offset)
        position = end
    if is_whole and (position != size or offset != run.end_offset or len(ends) != run.batch_count):
        raise _corrupt(run, position, f"is after {len(ends)} batches up to offset {offset}, not "
                                      f"{run.batch_count} up to {run.end_offset}")
    if not ends or offset > run.end_offset or len(ends) > run.batch_count:
        raise _corrupt(run, position, "is not the batch that it should be")
    return Block(view[:position].toreadonly(), run.base_offset, ends, end_offsets)


def rest_of(run: BatchRun, block: Block) -> BatchRun | None:
    """What is left of a run after the block with which it begins; None if that is all of it."""
    if block.end_offset >= run.end_offset:
        return None
    return run._replace(
        base_offset=block.end_offset, position=run.position + block.size,
        size=run.size - block.size, batch_count=run.batch_count - block.count)


def first_size(data: Buffer) -> int:
    """Bytes of the batch that begins with `data`, as its header says."""
    _, length = Struct(">qi").unpack_from(data)
    return LENGTH_START + int(length)


def placed_block(
    data: bytearray, starts: Sequence[int], base_offset: Offset, counts: Sequence[int],
    leader_epoch: int = LEADER_EPOCH,
) -> Block:
    """A block of batches that were checked when they were produced; changes `data`.

    `starts` are where they begin, and where the last one ends; `counts` are their offsets.
    """
    offset: int = base_offset
    ends: list[int] = []
    end_offsets: list[int] = []
    for (position, end), count in zip(pairwise(starts), counts, strict=True):
        _OFFSET.pack_into(data, position, offset)
        _EPOCH.pack_into(data, position + _EPOCH_POSITION, leader_epoch)
        offset += count
        ends.append(end - starts[0])
        end_offsets.append(offset)
    view = memoryview(data)[starts[0] : starts[-1]].toreadonly()
    return Block(view, base_offset, ends, end_offsets)


def _corrupt(run: BatchRun, position: int, what: str) -> CorruptObject:
    return CorruptObject(f"{run.log}: offset {run.base_offset} and later ones: byte "
                         f"{run.position + position} of {run.key} {what}")
