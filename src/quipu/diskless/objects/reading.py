"""Reads objects: a footer from a store, and the batches in the bytes of a run.

Batches are stored as they were produced.  Who sends them on sets their base offset and leader epoch
in a copy (`place_batches`), which Kafka's checksum does not cover.

Invariant
    diskless.objects.O5  of a run, nothing is returned unless its batches fill its bytes, take just
                         its offsets, are as many as the run has, and each has the checksum of its
                         header
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from quipu.diskless.errors import CorruptObject
from quipu.diskless.objects.encoding import PendingBatch
from quipu.diskless.objects.footer import (
    HEADER_SIZE,
    TRAILER_SIZE,
    FooterBatch,
    ObjectFooter,
    check_footer_crc,
    check_header,
    decode_footer,
    decode_trailer,
)
from quipu.diskless.objects.names import find_name
from quipu.diskless.values import LEADER_EPOCH, BatchRun, LogKey
from quipu.model.ids import Offset
from quipu.runtime.objects.store import Buffer, ByteRange, ObjectStore
from quipu.wire.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from quipu.wire.record_batch import MAGIC, BatchHeader, body_crc, parse_header

TAIL_SIZE: Final = 64 << 10  # bytes read at once from the end of an object
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_EPOCH_POSITION: Final = 12


# --- footers ----------------------------------------------------------------------------------


async def read_footer(
    store: ObjectStore, key: str, size: int, *, tail_size: int = TAIL_SIZE
) -> ObjectFooter:
    """The footer of an object of `size` bytes, by one ranged get, or two if it is large.

    Raises `CorruptObject`, `UnknownFormat`, or an error of the store.
    """
    if size < HEADER_SIZE + TRAILER_SIZE:
        raise CorruptObject(f"{key}: {size} bytes are no object")
    start = max(0, size - max(tail_size, TRAILER_SIZE))
    (tail,) = await store.get_ranges(key, [ByteRange(start, size)])
    if len(tail) != size - start:
        raise CorruptObject(f"{key}: has fewer than {size} bytes")
    try:
        pointer = decode_trailer(tail[-TRAILER_SIZE:])
        if pointer.object_size != size:
            raise CorruptObject(f"has {size} bytes, was written with {pointer.object_size}")
        if pointer.position >= start:
            data = tail[pointer.position - start : -TRAILER_SIZE]
        else:
            (head,) = await store.get_ranges(key, [ByteRange(pointer.position, start)])
            data = b"".join((head, tail[:-TRAILER_SIZE]))
        check_footer_crc(data, pointer)
        footer = decode_footer(data, position=pointer.position)
    except CorruptObject as error:
        raise CorruptObject(f"{key}: {error}") from error
    if find_name(key) != footer.name:
        raise CorruptObject(f"{key}: its footer is that of {footer.name.key}")
    return footer


def footer_of(data: memoryview) -> ObjectFooter:
    """The footer of a whole object; raises `CorruptObject`, or `UnknownFormat`."""
    check_header(data)
    if len(data) < HEADER_SIZE + TRAILER_SIZE:
        raise CorruptObject(f"{len(data)} bytes are no object")
    pointer = decode_trailer(data[-TRAILER_SIZE:])
    if pointer.object_size != len(data):
        raise CorruptObject(f"has {len(data)} bytes, was written with {pointer.object_size}")
    footer = data[pointer.position : -TRAILER_SIZE]
    check_footer_crc(footer, pointer)
    return decode_footer(footer, position=pointer.position)


# --- batches ----------------------------------------------------------------------------------


class RunBatch(NamedTuple):
    """A batch in the bytes of a run."""

    start: int  # from the beginning of the run's bytes
    end: int
    base_offset: Offset
    header: BatchHeader  # as it was produced: its own base offset means nothing

    @property
    def end_offset(self) -> Offset:
        """The offset of the record after its last one."""
        return Offset(self.base_offset + self.header.last_offset_delta + 1)


def check_run(data: memoryview, run: BatchRun, *, with_bodies: bool = True) -> list[RunBatch]:
    """The batches in the bytes of a run; raises `CorruptObject` (diskless.objects.O5).

    Without bodies, checksums are not computed: for bytes that were checked before.
    """
    if len(data) != run.size:
        raise CorruptObject(f"{run.key}: a run of {run.size} bytes at {run.position}, has "
                            f"{len(data)}")
    found: list[RunBatch] = []
    position, offset = 0, run.base_offset
    while position < len(data):
        header = _header_at(data, position, run)
        end = position + header.size
        if with_bodies and body_crc(data[position:end]) != header.crc:
            raise CorruptObject(
                f"{run.key}: the batch at {run.position + position} has a bad checksum")
        batch = RunBatch(position, end, offset, header)
        found.append(batch)
        position, offset = end, batch.end_offset
    if offset != run.end_offset or len(found) != run.batch_count:
        raise CorruptObject(
            f"{run.key}: {len(found)} batches at {run.position} take the offsets {run.base_offset} "
            f"to {offset}, not {run.batch_count} to {run.end_offset}")
    return found


def _header_at(data: memoryview, position: int, run: BatchRun) -> BatchHeader:
    if len(data) - position >= BATCH_HEADER_SIZE:
        header = parse_header(data, position)
        if is_plausible(header) and position + header.size <= len(data):
            return header
    raise CorruptObject(f"{run.key}: no batch at {run.position + position}")


def is_plausible(header: BatchHeader) -> bool:
    """Whether a header can be that of a batch; one without records only takes offsets."""
    return (header.magic == MAGIC and header.size >= BATCH_HEADER_SIZE
            and header.last_offset_delta >= 0
            and header.count in {0, header.last_offset_delta + 1})


def check_batch(data: memoryview, expected: FooterBatch) -> BatchHeader:
    """The header of a batch that is as the footer says; raises `CorruptObject`."""
    place = expected.coordinates
    if len(data) != place.size or len(data) < BATCH_HEADER_SIZE:
        raise CorruptObject(f"the batch at {place.position} has {len(data)} bytes, "
                            f"not {place.size}")
    header = parse_header(data)
    if not is_plausible(header) or header.size != place.size:
        raise CorruptObject(f"the batch at {place.position} has a damaged header")
    if body_crc(data) != header.crc:
        raise CorruptObject(f"the batch at {place.position} has a bad checksum")
    said = (place.record_count, place.max_timestamp, place.producer_id, place.producer_epoch,
            place.base_sequence, expected.crc)
    if said != (header.last_offset_delta + 1, header.max_timestamp, header.producer_id,
                header.producer_epoch, header.base_sequence, header.crc):
        raise CorruptObject(f"the batch at {place.position} is not the one in the footer")
    return header


def place_batch(batch: bytearray | memoryview, base_offset: int, position: int = 0) -> None:
    """Set base offset and leader epoch of the batch at `position`, in place."""
    _OFFSET.pack_into(batch, position, base_offset)
    _EPOCH.pack_into(batch, position + _EPOCH_POSITION, LEADER_EPOCH)


def place_batches(data: Buffer, batches: Sequence[RunBatch]) -> bytearray:
    """A copy of the bytes of consecutive batches of a run, with their offsets and leader epoch.

    `data` are the bytes of the whole run, to which the batches' positions refer.
    """
    if not batches:
        return bytearray()
    start = batches[0].start
    copy = bytearray(data[start : batches[-1].end])
    for batch in batches:
        place_batch(copy, batch.base_offset, batch.start - start)
    return copy


def pending_of_run(
    log: LogKey, data: memoryview, batches: Sequence[RunBatch]
) -> list[PendingBatch]:
    """The batches of a run with their offsets, to be part of another object."""
    return [PendingBatch(log, data[batch.start : batch.end], batch.header, batch.base_offset)
            for batch in batches]
