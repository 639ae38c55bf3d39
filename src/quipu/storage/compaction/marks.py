"""What a compacted segment says of itself: a header of the first record of its checkpoint.

    compacted   header of the record `log`: cleaned end i64 | removed end i64 | horizon ms i64

    cleaned end   if it lies in this segment: up to there, no record of the log has a later one of
                  its key, counting only records below it.  0: this segment does not say.  A
                  segment without the header was not compacted, and has no holes
    removed end   the log offset after the last tombstone that was removed from this segment
    horizon       when the first of its tombstones may go; NO_HORIZON if it has none

Invariants
    storage.KM1  the segment that holds the cleaned end is switched last of all that were cleaned
        with it, so the cleaned end holds whenever it can be read
    storage.KM2  it holds for the files of the node that cleaned them, and for no other's: a replica
        that is sent the checkpoint forgets it, and keeps the removed end
    storage.KM3  a log whose end lies before the removed end of another may hold records that a
        removed tombstone deleted: it is not continued from there, but copied anew

Not here: the other records of a checkpoint (derived/checkpoint.py).
"""

from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from quipu.model.batch_types import CHECKPOINT
from quipu.model.errors import MalformedBytes
from quipu.runtime.disks.disk import Disk
from quipu.wire.record_batch import Record, decode_records, encode_batch
from quipu.wire.stored_batch import (
    PREFIX_SIZE,
    STORED_HEADER_SIZE,
    Fault,
    StoredHeader,
    check_body,
    check_header,
    pack_prefix,
)

HEADER_NAME: Final = "compacted"
LOG_KEY: Final = b"log"
NO_HORIZON: Final = 2**63 - 1
CHECKPOINT_SIZE_MAX: Final = 64 << 20
_MARK: Final = Struct(">qqq")


class CompactionMark(NamedTuple):
    """What one segment says; see the module."""

    cleaned_end: int = 0
    removed_end: int = 0
    horizon_ms: int = NO_HORIZON

    @property
    def may_have_holes(self) -> bool:
        """Was the segment compacted, here or where it comes from?"""
        return self.cleaned_end != NEVER_CLEANED


NEVER_CLEANED: Final = -1
NO_MARK: Final = CompactionMark(NEVER_CLEANED)


def decode_mark(headers: tuple[tuple[str, bytes | None], ...]) -> CompactionMark:
    """The mark among the headers of a checkpoint's record; raises `MalformedBytes`."""
    value = dict(headers).get(HEADER_NAME)
    if value is None:
        return NO_MARK
    if len(value) != _MARK.size:
        raise MalformedBytes(f"compaction mark of {len(value)} bytes")
    return CompactionMark(*_MARK.unpack(value))


def with_mark(stored: memoryview, header: StoredHeader, mark: CompactionMark) -> bytes:
    """A stored checkpoint with another mark; the same offsets, times and records."""
    assert header.batch_type == CHECKPOINT, header
    records = [_marked(record, mark) for record in decode_records(
        stored[PREFIX_SIZE:], size_max=CHECKPOINT_SIZE_MAX)]
    assert len(records) == header.count == header.last_offset_delta + 1, header
    batch = encode_batch(records, base_offset=header.base_offset,
                         leader_epoch=header.leader_epoch)
    return pack_prefix(batch, batch_type=CHECKPOINT, log_offset=header.log_offset) + bytes(batch)


def received(stored: memoryview, header: StoredHeader) -> memoryview:
    """A checkpoint of another node as it is stored here: only the removed end is kept.

    Keeps storage.KM2.
    """
    mark = NO_MARK
    for record in decode_records(stored[PREFIX_SIZE:], size_max=CHECKPOINT_SIZE_MAX):
        if record.key == LOG_KEY:
            mark = decode_mark(record.headers)
    kept = CompactionMark(removed_end=mark.removed_end)
    return stored if mark in (kept, NO_MARK) else memoryview(with_mark(stored, header, kept))


def read_mark(disk: Disk, path: str) -> CompactionMark:
    """The mark of the segment at `path`; none if its checkpoint cannot be read."""
    data = memoryview(disk.read(path, STORED_HEADER_SIZE))
    header = check_header(data, end=disk.size(path))
    if isinstance(header, Fault) or header.batch_type != CHECKPOINT:
        return NO_MARK
    data = memoryview(disk.read(path, header.size))
    if check_body(data, 0, header) is None:
        with suppress(MalformedBytes):
            for record in decode_records(data[PREFIX_SIZE:], size_max=CHECKPOINT_SIZE_MAX):
                if record.key == LOG_KEY:
                    return decode_mark(record.headers)
    return NO_MARK


def _marked(record: Record, mark: CompactionMark) -> Record:
    if record.key != LOG_KEY:
        return record
    headers = tuple(each for each in record.headers if each[0] != HEADER_NAME)
    return record._replace(headers=(*headers, (HEADER_NAME, _MARK.pack(*mark))))
