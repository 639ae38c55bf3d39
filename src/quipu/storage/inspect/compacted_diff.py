"""Whether two replicas of a compacted log are equal after compaction.

Members of a chain compact on their own, so one may still have records that the other has removed.
They are equal after compaction if

    storage.inspect.E1  both cover the same offsets, and what is no data is the same in both, except
        for checkpoints, of which one may have been merged away
    storage.inspect.E2  a record that both have is the same in both
    storage.inspect.E3  a reader of either ends with the same last value of every key

Memory: some hundred bytes for each key of the two logs.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from quipu.model.batch_types import CHECKPOINT, DATA, FILLER
from quipu.model.errors import MalformedBytes
from quipu.runtime.disks.disk import Disk
from quipu.storage.compaction.marks import read_mark
from quipu.storage.inspect.files import LogFiles
from quipu.storage.inspect.walk import WalkedDamage, walk
from quipu.wire.record_batch import DECOMPRESSED_SIZE_MAX, Record, decode_records
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader

HASH_SIZE: Final = 16
_REPLACEABLE: Final = frozenset({DATA, CHECKPOINT, FILLER})

Found = tuple[int, int, str]  # log offset, offset, and what differs


def is_compacted(disk: Disk, log: LogFiles) -> bool:
    """Has any segment of the log been compacted, here or where it comes from?"""
    return any(read_mark(disk, segment.path).may_have_holes for segment in log.segments)


class CompactedComparison:
    """Reads two logs side by side; afterwards `found` says where they are not equal, if so."""

    def __init__(self, disk: Disk, a: LogFiles, b: LogFiles) -> None:
        self._sides = (_Replica(disk, a, "A"), _Replica(disk, b, "B"))
        self.batches = 0
        self.bytes = 0
        self.records_of_one = 0  # that only one of the two still has
        self.found = self._run()

    def _run(self) -> Found | None:
        a, b = self._sides
        start = max(a.next_log, b.next_log)
        for side in (a, b):
            side.pass_over(start)
        while not (a.is_done and b.is_done):
            stretch_a, stretch_b = _Stretch(), _Stretch()
            a.read_into(stretch_a)
            b.read_into(stretch_b)
            while a.next_log != b.next_log and not (a.damage or b.damage):
                side, stretch = (a, stretch_a) if a.next_log < b.next_log else (b, stretch_b)
                if side.is_done:
                    other = b if side is a else a
                    why = (f"missing in {side.label}: {other.label} goes on to log offset "
                           f"{other.next_log}")
                    return side.next_log, side.next_offset, why
                side.read_into(stretch)
            for side in (a, b):
                if side.damage:
                    return side.next_log, side.next_offset, f"{side.label} is {side.damage}"
            if (found := self._compare(stretch_a, stretch_b)) is not None:
                return found
        return self._compare_tables()

    def _compare(self, a: "_Stretch", b: "_Stretch") -> Found | None:
        """Compare what both have up to the next offset where batches of both end."""
        self.batches += len(a.headers)
        self.bytes += sum(header.size for header in a.headers)
        first = a.headers[0] if a.headers else b.headers[0]
        place = first.log_offset, first.base_offset
        if a.others != b.others:
            return *place, "batches that are no data differ"  # storage.inspect.E1
        try:
            records_a, records_b = a.records(), b.records()
        except MalformedBytes as error:
            return *place, f"records that cannot be read: {error}"
        for offset, record in records_a.items():
            other = records_b.get(offset)
            if other is not None and other != record:  # storage.inspect.E2
                return place[0], offset, f"record {offset}: A {record!r}, B {other!r}"
        self.records_of_one += len(records_a.keys() ^ records_b.keys())
        for side, records in zip(self._sides, (records_a, records_b), strict=True):
            side.apply(records)
        return None

    def _compare_tables(self) -> Found | None:
        """Compare the last values of all keys (storage.inspect.E3)."""
        a, b = (side.table for side in self._sides)
        if a == b:
            return None
        offset, label = min(
            (one[key], label) for one, other, label in ((a, b, "B"), (b, a, "A"))
            for key in one if other.get(key) != one[key])
        return self._sides[0].next_log, offset, f"{label} lacks it, and no later record of its key"


class _Stretch:
    """Batches of one replica."""

    def __init__(self) -> None:
        self.headers: list[StoredHeader] = []
        self.others: list[bytes] = []  # whole batches that compaction leaves alone
        self._data: list[memoryview] = []

    def add(self, header: StoredHeader, stored: memoryview) -> None:
        self.headers.append(header)
        if header.batch_type not in _REPLACEABLE:
            self.others.append(bytes(stored))
        elif header.batch_type == DATA and header.count > 0:
            self._data.append(stored)

    def records(self) -> dict[int, Record]:
        return {record.offset: record for stored in self._data
                for record in decode_records(stored[PREFIX_SIZE:], size_max=DECOMPRESSED_SIZE_MAX)}


class _Replica:
    """One log, at the batch that comes next."""

    def __init__(self, disk: Disk, log: LogFiles, label: str) -> None:
        self.label = label
        self.damage = ""
        self.table: dict[bytes, int] = {}  # the offset of the last record of each key, by its hash
        self._batches = _batches(disk, log)
        self._next = next(self._batches, None)
        self.next_log = self.next_offset = 0
        if self._next is not None and not isinstance(self._next, WalkedDamage):
            header, _ = self._next
            self.next_log, self.next_offset = header.log_offset, header.base_offset

    @property
    def is_done(self) -> bool:
        return self._next is None

    def pass_over(self, start: int) -> None:
        """Leave out what ends at or before `start`: the other replica no longer has it."""
        while self._next is not None and self.next_log < start and not self.damage:
            self.read_into(_Stretch())

    def read_into(self, stretch: _Stretch) -> None:
        """Take the next batch."""
        if isinstance(self._next, WalkedDamage):
            self.damage = f"damaged: {self._next.fault} at position {self._next.position}"
            return
        if self._next is None:
            return
        header, stored = self._next
        stretch.add(header, stored)
        self.next_log, self.next_offset = header.next_log_offset, header.next_offset
        self._next = next(self._batches, None)

    def apply(self, records: dict[int, Record]) -> None:
        """Do what a reader that builds a table does."""
        for offset, record in sorted(records.items()):
            if record.key is None:
                continue
            key = blake2b(record.key, digest_size=HASH_SIZE).digest()
            if record.value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = offset


def _batches(disk: Disk, log: LogFiles) -> Iterator[tuple[StoredHeader, memoryview] | WalkedDamage]:
    for segment in log.segments:
        data = disk.map(segment.path)
        for found in walk(data, log_offset_min=segment.first_log_offset or 0):
            if isinstance(found, WalkedDamage):
                yield found
            elif found.fault is not None:
                yield WalkedDamage(found.position, found.end, found.fault)
            else:
                yield found.header, data[found.position : found.end]
