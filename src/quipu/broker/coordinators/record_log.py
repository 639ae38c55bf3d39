"""The state of one shard as records with keys, which clients can read and compaction keeps small.

    checkpoint · mark · data · data · ...                  a log that began like this
    commands · snapshot · commands · | data · mark · data  a log that began with commands: at the
                                                           bar a segment begins, and all before it
                                                           goes once the mark is committed

The last record of a key is what holds; one without a value deletes the key.  The mark is a batch
of the type of commands, which clients do not see.  It says that commands before it are void, and
its bytes are no command, so that a program that knows commands only refuses the log instead of
serving an old state.

Invariants
    broker.coordinators.R1  the mark comes after records that hold the whole state of the commands
                            before it, and is written once these are committed; so a log without
                            the mark is read from its commands, and one with it from its records
    broker.coordinators.R2  records are appended only to a log that has the mark
    broker.coordinators.R3  records of one `append` are one batch: a crash keeps all of them or none
    broker.coordinators.R4  reading takes a step for every few records, so that other tasks run

The log follows broker.coordinators.H1, H2 and H3 as a log of commands does (command_log.py).
Not here: what keys and values mean (groups/kafka_records.py), compaction (partitions/cleaning.py).
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from quipu.broker.coordinators.command_log import (
    PartitionStorage,
    all_committed,
    retried,
    take_all_steps,
)
from quipu.model.batch_types import DATA, SNAPSHOT, BatchType
from quipu.model.ids import LogOffset
from quipu.model.partition_log import PartitionLog
from quipu.runtime.clock import Clock
from quipu.storage.state_log import RECORDS_PER_STEP, StateLog

BATCH_SIZE_MAX: Final = 128 << 10  # of the batches that replace commands, about
MARK_KEY: Final = b"records"  # commands have no key
MARK_TYPE: Final = 5  # no command begins with this byte, and none ever will
_MARK: Final = Struct(">BBQ")  # type, version, the log offset of the first segment that counts


class KeyedRecord(NamedTuple):
    """A record of a shard's log."""

    key: bytes | None  # None: `value` is a command, from before there were keys
    value: bytes | None  # None: the key is deleted

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class LogForm(NamedTuple):
    """What a log begins with."""

    has_commands: bool
    start: LogOffset | None  # where the segments begin that count; None: there is no mark


class RecordsBegin(NamedTuple):
    """The mark: what holds are records, from the segment at `start` on."""

    start: LogOffset


def mark_of(value: bytes) -> RecordsBegin | None:
    """The mark in `value`; None if it is a command."""
    if len(value) != _MARK.size or value[0] != MARK_TYPE:
        return None
    return RecordsBegin(LogOffset(_MARK.unpack(value)[2]))


class PartitionRecordLog:
    """The records of one shard, for as long as this node leads its partition."""

    commands_size = 0  # compaction keeps it small

    def __init__(self, partition: PartitionLog, command_type: BatchType, clock: Clock) -> None:
        self._partition = partition
        self._command_type = command_type
        self._clock = clock
        self._storage = PartitionStorage(partition)
        self._state_log = StateLog(self._storage, command_type, clock)  # raises if it has failed
        self._form = LogForm(has_commands=False, start=None)

    def close(self) -> None:
        """Write nothing more (broker.coordinators.H1)."""
        self._storage.is_closed = True

    # -- called by the writer

    @property
    def must_snapshot(self) -> bool:
        """Whether the log has no mark yet (broker.coordinators.R2)."""
        return self._form.start is None

    def size_of(self, record: KeyedRecord) -> int:
        return record.size

    async def load(self, apply: Callable[[KeyedRecord], None]) -> None:
        """Call `apply` with every record; return when all of them are committed."""
        await take_all_steps(self._replaying(apply))
        await all_committed(self._partition, self._storage)
        if self._form.has_commands and self._form.start is not None:
            self._storage.drop_before(self._form.start)

    async def append(self, records: Sequence[KeyedRecord]) -> None:
        """Append `records`.  If this raises, they may be in the log all the same."""
        assert not self.must_snapshot, self._storage.name  # broker.coordinators.R2
        await retried(partial(self._append, DATA, records))  # broker.coordinators.R3
        await self._storage.committed()

    async def snapshot(self, records: Iterable[KeyedRecord]) -> None:
        """Make the log one of records, with `records` as its whole state.

        It is written in steps, as `storage.state_log.StateLog.snapshot` is, and under its rules.
        """
        if not self._form.has_commands:  # it is empty: what the state has is on its way
            self._form = LogForm(has_commands=False, start=await self._mark(self._storage.log_end))
            return
        await retried(lambda: self._storage.roll(self._clock.now_ms()))
        start = self._storage.log_end
        for chunk in _chunks(records):
            await retried(partial(self._append, DATA, chunk))
            await asyncio.sleep(0)
        await self._storage.committed()
        await self._mark(start)  # broker.coordinators.R1
        await self._storage.committed()
        self._form = LogForm(has_commands=False, start=start)
        self._storage.drop_before(start)

    async def _mark(self, start: LogOffset) -> LogOffset:
        mark = KeyedRecord(MARK_KEY, _MARK.pack(MARK_TYPE, 0, start))
        await retried(partial(self._append, self._command_type, [mark]))
        return start

    def _append(self, batch_type: BatchType, records: Sequence[KeyedRecord]) -> None:
        self._storage.append(batch_type, records, self._clock.now_ms())

    def _replaying(self, apply: Callable[[KeyedRecord], None]) -> Iterator[None]:
        self._form = yield from find_form(self._storage, self._command_type)
        if self._form.start is not None:
            yield from self._replaying_records(apply)
        elif self._form.has_commands:
            yield from self._state_log.replaying(lambda command: apply(KeyedRecord(None, command)))

    def _replaying_records(self, apply: Callable[[KeyedRecord], None]) -> Iterator[None]:
        for batch in self._storage.read(LogOffset(0)):
            if batch.batch_type == DATA:
                for number, (key, value) in enumerate(batch.records, 1):
                    apply(KeyedRecord(key or b"", value))
                    if number % RECORDS_PER_STEP == 0:
                        yield  # broker.coordinators.R4
            yield


def find_form(
    storage: PartitionStorage, command_type: BatchType, end: LogOffset | None = None
) -> Generator[None, None, LogForm]:
    """What the log begins with, below `end`; looks at no more of it than it must."""
    has_commands = False
    for batch in storage.read(LogOffset(0)):
        if end is not None and batch.next_log_offset > end:
            break
        if batch.batch_type == DATA and not has_commands:
            # The segments with the commands are gone, which they are only after the mark.
            return LogForm(has_commands=False, start=batch.log_offset)
        if batch.batch_type == command_type:
            _, value = next(batch.records)
            if (mark := mark_of(value or b"")) is not None:
                return LogForm(has_commands, mark.start)
            has_commands = True
        elif batch.batch_type == SNAPSHOT:
            has_commands = True
        yield
    return LogForm(has_commands, start=None)


def trim_commands(partition: PartitionLog, command_type: BatchType) -> Iterator[None]:
    """Drop the segments before a committed mark, on a replica that does not lead."""
    if partition.failure is None and partition.internal.segment_count >= 2:
        storage = PartitionStorage(partition)
        form = yield from find_form(storage, command_type, partition.committed_end)
        if form.has_commands and form.start is not None:
            storage.drop_before(form.start)


def _chunks(records: Iterable[KeyedRecord]) -> Iterator[list[KeyedRecord]]:
    chunk: list[KeyedRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += record.size
        if size >= BATCH_SIZE_MAX:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
