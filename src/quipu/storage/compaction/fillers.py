"""Fillers: empty batches that take the place of batches that compaction removed.

A filler has no records and covers the offsets of what was removed, so batches still follow each
other without a gap, and whatever walks over a log works with a compacted one as with any other.
The holes are within batches: a batch may have fewer records than offsets.

    DATA     in place of data batches: count 0, lastOffsetDelta as wide as what was removed.  Kafka
             clients know such batches, from Kafka's own compaction, and go on after them
    FILLER   in place of checkpoints of segments that were merged into one: no client sees it

Invariants
    storage.KF1  a filler covers whole batches of one leader epoch: each end is where a batch of the
        log before its compaction began or ended
    storage.KF2  so a filler may be split where another replica's log ends, and only there: both
        parts cover what the whole did

Not here: what is removed (rewriting.py).
"""

from struct import Struct
from typing import Final

from crc32c import crc32c

from quipu.model.batch_types import DATA, FILLER
from quipu.wire.record_batch import CRC_START, HEADER, LENGTH_START, MAGIC
from quipu.wire.stored_batch import PREFIX_SIZE, Fault, StoredHeader, check_stored, pack_prefix

SPAN_MAX: Final = 2**31 - 1  # offsets that one filler covers
FILLER_SIZE: Final = PREFIX_SIZE + HEADER.size

_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17


def make_filler(
    batch_type: int, *, log_offset: int, base_offset: int, span: int, leader_epoch: int
) -> bytes:
    """A stored filler at these offsets that covers `span` of them."""
    assert batch_type in {DATA, FILLER}, batch_type
    assert 0 < span <= SPAN_MAX, span
    return pack_empty(batch_type, log_offset, (
        base_offset, HEADER.size - LENGTH_START, leader_epoch, MAGIC, 0, 0, span - 1, -1, -1, -1,
        -1, -1, 0))


def emptied(header: StoredHeader) -> bytes:
    """The batch with this header, without its records: it keeps its producer and sequence."""
    fields = header.batch._replace(
        batch_length=HEADER.size - LENGTH_START, attributes=0, base_timestamp=-1,
        max_timestamp=-1, count=0)
    return pack_empty(header.batch_type, header.log_offset, fields)


def pack_empty(batch_type: int, log_offset: int, fields: tuple[int, ...]) -> bytes:
    """A stored batch without records; `fields` are those of Kafka's header."""
    batch = bytearray(HEADER.pack(*fields))
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return pack_prefix(batch, batch_type=batch_type, log_offset=log_offset) + bytes(batch)


def is_filler(header: StoredHeader) -> bool:
    """Does the batch only cover offsets?"""
    return header.count == 0 and header.producer_id < 0 and header.batch_type in {DATA, FILLER}


def cropped(stored: bytes, log_end: int) -> bytes:
    """A stored batch of another replica; a filler that goes beyond `log_end` is cut there."""
    header = check_stored(memoryview(stored))
    if (isinstance(header, Fault) or header.size != len(stored) or not is_filler(header)
            or not header.log_offset < log_end < header.next_log_offset):
        return stored
    return split_filler(header, header.log_offset, log_end)


def split_filler(header: StoredHeader, start: int, end: int) -> bytes:
    """The part of a filler from log offset `start` to `end` (storage.KF2)."""
    assert is_filler(header), header
    assert header.log_offset <= start < end <= header.next_log_offset, (header, start, end)
    inside = start - header.log_offset if header.batch_type == DATA else 0
    return make_filler(header.batch_type, log_offset=start,
                       base_offset=header.base_offset + inside, span=end - start,
                       leader_epoch=header.leader_epoch)
