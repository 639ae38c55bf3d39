"""State kept as commands in a log: replayed at the start, bounded by snapshots.

    segment n      checkpoint · commands · commands · commands
    segment n+1    checkpoint · begin · items · items · end · commands · ...
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^ SNAPSHOT batches

A snapshot is a list of commands that builds the state from nothing.  It starts a segment of its
own, and counts from the moment when its end is in the log: until then it is ignored, and the
commands before it are still there.

`StateStorage` is the log that it is kept in; what implements it knows the replicas of the log.

Invariants
    storage.SL1  replay gives every command that was appended and acknowledged, in order: those of
        the newest complete snapshot, then those appended after it
    storage.SL2  `append` returns when the commands are committed (durable, where there are no
        replicas); commands of one call are one batch, so a crash keeps all of them or none
    storage.SL3  segments before a snapshot go only after the whole snapshot is committed
    storage.SL4  a snapshot counts only if its end agrees with its items in number and checksum
    storage.SL5  nothing here takes long in one go: reading and writing a snapshot go in steps

Not here: what the commands mean (controller, groups), the log itself (log).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from quipu.model.batch_types import SNAPSHOT, BatchType
from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import LogOffset
from quipu.model.partition_log import InternalBatch
from quipu.runtime.clock import Clock
from quipu.storage.log import Log
from quipu.wire.record_batch import decode_records

_log = logging.getLogger(__name__)

Apply = Callable[[bytes], None]

COMMAND_SIZE: Final = 256  # what a command counts for besides its bytes: small ones take time, too
BATCH_SIZE_MAX: Final = 128 << 10  # of a snapshot's batches, about; the loop turns between two
RECORDS_PER_STEP: Final = 50  # that are replayed before others get their turn
RECORDS_SIZE_MAX: Final = 1 << 30  # of one batch; they are written uncompressed, by ourselves

# What a record of a SNAPSHOT batch is, by its key.
BEGIN: Final = b"begin"
ITEM: Final = b"item"
END: Final = b"end"
_END_VALUE: Final = Struct(">QI")  # number of items, CRC-32C over their values one after the other


class _Tally(NamedTuple):
    """What the end of a snapshot must agree with (storage.SL4)."""

    item_count: int = 0
    checksum: int = 0

    def with_item(self, value: bytes) -> "_Tally":
        return _Tally(self.item_count + 1, crc32c(value, self.checksum))


class StateStorage(Protocol):
    """The log under a state log, and when what was written to it is committed."""

    @property
    def name(self) -> str: ...
    @property
    def failure(self) -> QuipuError | None: ...
    @property
    def log_end(self) -> LogOffset: ...
    @property
    def first_log_offset(self) -> LogOffset: ...
    def append(
        self, batch_type: BatchType, records: Sequence[tuple[bytes | None, bytes]], now_ms: int
    ) -> None: ...
    def roll(self, now_ms: int) -> None: ...
    def read(self, start: LogOffset) -> Iterator[InternalBatch]: ...
    def drop_before(self, log_offset: LogOffset) -> int: ...
    async def committed(self) -> None:
        """Return when everything in the log is committed; raise if it will not be."""
        ...


def internal_batches(log: Log, start: LogOffset) -> Iterator[InternalBatch]:
    """Every batch of `log`, of any type, from the one that holds `start` on; checked."""
    for batch in log.read_stored(start):
        header = batch.header
        yield InternalBatch(
            header.batch_type, LogOffset(header.log_offset), LogOffset(header.next_log_offset),
            ((record.key, record.value)
             for record in decode_records(batch.batch, size_max=RECORDS_SIZE_MAX)))


class StateLog:
    """Commands of one batch type over a log of their own."""

    def __init__(self, storage: StateStorage, batch_type: BatchType, clock: Clock) -> None:
        if storage.failure is not None:
            raise storage.failure
        self._storage = storage
        self._batch_type = batch_type
        self._clock = clock
        self._pending = 0  # appends that are not durable yet
        self._in_snapshot = False  # one is being written
        self.commands_size = 0  # of commands since the last snapshot: what replaying them costs

    def replay(self, apply: Apply) -> None:
        """Give every command to `apply` (storage.SL1)."""
        for _ in self.replaying(apply):
            pass

    def replaying(self, apply: Apply) -> Iterator[None]:
        """The same, batch by batch, so that the loop can turn in between."""
        assert self._pending == 0, f"{self._storage.name}: replay while commands are appended"
        assert not self._in_snapshot, f"{self._storage.name}: replay during a snapshot"
        start: LogOffset | None = None
        for found in self._snapshots():
            start = start if found is None else found
            yield
        if start is None and self._begins_late():
            raise CorruptLog(
                f"{self._storage.name}: its first segments are gone and no snapshot is complete; "
                "restore the directory from a copy, or look at it with `quipu log show`")
        self.commands_size = 0
        in_snapshot = start is not None
        for batch in self._storage.read(start or LogOffset(0)):
            if batch.batch_type == self._batch_type:
                in_snapshot = False
                for number, (_, value) in enumerate(batch.records, 1):
                    apply(value or b"")
                    self.commands_size += COMMAND_SIZE + len(value or b"")
                    if number % RECORDS_PER_STEP == 0:
                        yield  # storage.SL5
            elif batch.batch_type == SNAPSHOT and in_snapshot:
                for number, (key, value) in enumerate(batch.records, 1):
                    if key == ITEM:
                        apply(value or b"")
                    elif key == END:
                        in_snapshot = False  # a later snapshot is not complete
                    if number % RECORDS_PER_STEP == 0:
                        yield  # storage.SL5
            yield

    def _begins_late(self) -> bool:
        return self._storage.first_log_offset > 0

    def trimming(self, kept_end: LogOffset) -> Iterator[None]:
        """Drop the segments before the newest snapshot of another writer, batch by batch.

        Only a snapshot that is committed counts: everything below `kept_end` is.
        """
        start: LogOffset | None = None
        for found in self._snapshots(kept_end):
            start = start if found is None else found
            yield
        if start is not None:
            assert start < kept_end, (self._storage.name, start, kept_end)  # storage.SL3
            self._storage.drop_before(start)

    async def append(self, commands: Sequence[bytes]) -> None:
        """Append commands as one batch; returns when they are durable (storage.SL2)."""
        assert commands, "nothing to append"
        assert not self._in_snapshot, f"{self._storage.name}: commands appended during a snapshot"
        size = self._append(self._batch_type, [(None, command) for command in commands])
        self.commands_size += size + COMMAND_SIZE * len(commands)
        self._pending += 1
        try:
            await self._storage.committed()
        finally:
            self._pending -= 1
            assert self._pending >= 0, self._storage.name

    async def snapshot(self, commands: Iterable[bytes]) -> None:
        """Replace everything before by `commands`, which build the state as it is now.

        The state must be that of all commands appended so far: no append may be under way.  It is
        written in steps (storage.SL5), so the state may change meanwhile: what changes it must be
        appended after this returns, and say no less when it is replayed on top of the newer state.
        """
        assert self._pending == 0, f"{self._storage.name}: snapshot while commands are appended"
        assert not self._in_snapshot, f"{self._storage.name}: two snapshots at once"
        self._storage.roll(self._clock.now_ms())
        start = self._storage.log_end
        self._in_snapshot = True
        try:
            await self._write_snapshot(commands)
        finally:
            self._in_snapshot = False
        self.commands_size = 0
        await self._storage.committed()
        removed = self._storage.drop_before(start)  # storage.SL3
        _log.info("%s: snapshot at log offset %d, %d segments removed",
                  self._storage.name, start, removed)

    async def _write_snapshot(self, commands: Iterable[bytes]) -> None:
        """Begin, items in batches of bounded size, end; all in the log when this returns."""
        assert self._in_snapshot, self._storage.name
        self._append(SNAPSHOT, [(BEGIN, bytes([self._batch_type]))])
        tally, size = _Tally(), 0
        items: list[tuple[bytes | None, bytes]] = []
        for command in commands:
            items.append((ITEM, command))
            tally, size = tally.with_item(command), size + len(command)
            if size >= BATCH_SIZE_MAX:
                self._append(SNAPSHOT, items)
                items, size = [], 0
                await asyncio.sleep(0)
        items.append((END, _END_VALUE.pack(*tally)))
        self._append(SNAPSHOT, items)

    def _append(self, batch_type: BatchType, pairs: Sequence[tuple[bytes | None, bytes]]) -> int:
        now_ms = self._clock.now_ms()
        self._storage.append(batch_type, pairs, now_ms)
        return sum(len(value) for _, value in pairs)

    # -- reading

    def _snapshots(self, end: LogOffset | None = None) -> Iterator[LogOffset | None]:
        """Where each complete snapshot below `end` begins; None for a batch that ends none.

        Complete is what storage.SL4 says.
        """
        begun: LogOffset | None = None
        tally = _Tally()
        for batch in self._storage.read(LogOffset(0)):
            if end is not None and batch.next_log_offset > end:
                return
            if batch.batch_type == self._batch_type:
                begun = None  # commands follow a snapshot that has no end: its writer died
            found: LogOffset | None = None
            for key, value in batch.records if batch.batch_type == SNAPSHOT else ():
                if key == BEGIN:
                    begun, tally = batch.log_offset, _Tally()
                elif key == ITEM:
                    tally = tally.with_item(value or b"")
                elif key == END and begun is not None:
                    if (value or b"") == _END_VALUE.pack(*tally):  # storage.SL4
                        found = begun
                        assert found <= batch.log_offset, (self._storage.name, found)
                    begun = None
            yield found
