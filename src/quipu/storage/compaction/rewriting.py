"""What compaction makes of one batch: the same, the same with fewer records, or nothing.

Invariants
    storage.KR1  a record that stays is unchanged: offset, timestamp, key, value, headers; and so
        are producer, sequence, leader epoch, codec and the offsets that its batch covers
    storage.KR2  a record goes only if a later record of its key is in the log and committed, if it
        is a tombstone whose time is over, or if it has no key
    storage.KR3  a tombstone's time begins when its batch is first compacted, and is over
        delete.retention.ms later; and it goes only from what was compacted before, so nothing that
        it deleted is left
    storage.KR4  a batch that cannot be read, a control batch, and what is no data stays as it is

The time of a batch's tombstones is stored as Kafka stores it: attribute bit 6 is set, and the base
timestamp is the time at which they may go, so the timestamp deltas are counted from there.

Not here: the walk over records (walk.py), files (worker.py).
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from crc32c import crc32c

from quipu.model.batch_types import DATA, FILLER
from quipu.model.errors import MalformedBytes, RequestError
from quipu.storage.compaction.fillers import emptied
from quipu.storage.compaction.marks import NO_HORIZON
from quipu.storage.compaction.walk import Kept, OffsetMap, rebase
from quipu.wire.compression import Compression, compress
from quipu.wire.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    DECOMPRESSED_SIZE_MAX,
    HEADER,
    HEADER_SIZE,
    LENGTH_START,
    LOG_APPEND_TIME_BIT,
)
from quipu.wire.record_check import decompress_records
from quipu.wire.stored_batch import PREFIX_SIZE, STORED_HEADER_SIZE, StoredHeader, pack_prefix

HORIZON_BIT: Final = 0x40  # the base timestamp is when the batch's tombstones may go

_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRules:
    """What one pass goes by."""

    map_end: int  # batches at or after this log offset stay as they are
    clean_end: int  # what lies below it was compacted before
    now_ms: int
    delete_retention_ms: int
    kept_bases: frozenset[int] = frozenset()  # batches whose producer and sequence must stay


@dataclass(slots=True)
class PassCounts:
    """What a pass has done."""

    records_read: int = 0
    records_kept: int = 0
    tombstones_removed: int = 0
    batches_unreadable: int = 0
    removed_end: int = 0  # log offset after the last tombstone that was removed
    horizon_ms: int = field(default=NO_HORIZON)  # when the first tombstone that stays may go
    is_changed: bool = False  # is any batch not as it was?


def records_of(header: StoredHeader, stored: memoryview) -> memoryview:
    """The decompressed records of a data batch; raises `MalformedBytes`."""
    assert header.batch_type == DATA, header
    try:
        records = decompress_records(stored[PREFIX_SIZE:], DECOMPRESSED_SIZE_MAX)
    except RequestError as error:
        raise MalformedBytes(str(error)) from error
    return stored[STORED_HEADER_SIZE:] if records is None else records


class Rewriter:
    """Rewrites the batches of one segment, or of several that become one."""

    def __init__(self, offsets: OffsetMap, rules: PassRules) -> None:
        self._offsets = offsets
        self._rules = rules
        self.counts = PassCounts()

    def rewrite(self, header: StoredHeader, stored: memoryview) -> memoryview | None:
        """What to write in place of a batch; None if a filler is to cover it."""
        if header.batch_type == FILLER:
            return None
        if (header.batch_type != DATA or header.attributes & CONTROL_BIT
                or header.next_log_offset > self._rules.map_end):
            self._note_horizon(header)
            return stored  # storage.KR4
        if header.count == 0:
            return self._emptied(header)
        try:
            records = records_of(header, stored)
            kept = self._offsets.keep(records, header.count, header.base_offset,
                                      drop_tombstones=self._may_drop(header))
        except MalformedBytes:
            self.counts.batches_unreadable += 1
            return stored  # storage.KR4
        self._count(header, kept)  # storage.KR2: the map has only committed records
        if kept.count == 0:
            self.counts.is_changed = True
            return self._emptied(header)
        needs_horizon = kept.tombstones > 0 and not header.attributes & HORIZON_BIT
        if kept.count == header.count and not needs_horizon:
            self._note_horizon(header)
            return stored
        self.counts.is_changed = True
        return memoryview(self._pack(header, kept, memoryview(kept.records) if kept.records
                                     else records, needs_horizon=needs_horizon))

    def _may_drop(self, header: StoredHeader) -> bool:
        """Is the time of the batch's tombstones over (storage.KR3)?"""
        return bool(header.attributes & HORIZON_BIT
                    and header.base_timestamp <= self._rules.now_ms
                    and header.next_log_offset <= self._rules.clean_end)

    def _emptied(self, header: StoredHeader) -> memoryview | None:
        if header.producer_id >= 0 and header.base_offset in self._rules.kept_bases:
            return memoryview(emptied(header))
        return None

    def _note_horizon(self, header: StoredHeader) -> None:
        if header.batch_type == DATA and header.attributes & HORIZON_BIT:
            self.counts.horizon_ms = min(self.counts.horizon_ms, header.base_timestamp)

    def _count(self, header: StoredHeader, kept: Kept) -> None:
        counts = self.counts
        assert 0 <= kept.count <= header.count, (header, kept.count)
        counts.records_read += header.count
        counts.records_kept += kept.count
        counts.tombstones_removed += kept.expired
        if kept.expired:
            counts.removed_end = max(counts.removed_end, header.next_log_offset)

    def _pack(
        self, header: StoredHeader, kept: Kept, records: memoryview, *, needs_horizon: bool
    ) -> bytes:
        """A stored batch with the records that stay (storage.KR1)."""
        attributes, base_timestamp = header.attributes, header.base_timestamp
        newest = header.max_timestamp
        if not attributes & LOG_APPEND_TIME_BIT:
            newest = base_timestamp + kept.newest_delta
        if needs_horizon:
            horizon = min(self._rules.now_ms + self._rules.delete_retention_ms, NO_HORIZON - 1)
            records = memoryview(rebase(records, kept.count, base_timestamp - horizon))
            attributes, base_timestamp = attributes | HORIZON_BIT, horizon
        elif kept.tombstones == 0:
            attributes &= ~HORIZON_BIT
        if attributes & HORIZON_BIT:
            self.counts.horizon_ms = min(self.counts.horizon_ms, base_timestamp)
        packed = compress(Compression(attributes & COMPRESSION_MASK), records)
        fields = header.batch._replace(
            batch_length=HEADER_SIZE - LENGTH_START + len(packed), crc=0, attributes=attributes,
            base_timestamp=base_timestamp, max_timestamp=newest, count=kept.count)
        batch = bytearray(HEADER.pack(*fields)) + packed
        _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
        return pack_prefix(batch, batch_type=DATA, log_offset=header.log_offset) + bytes(batch)
