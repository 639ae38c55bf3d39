"""State kept as commands in a log: replayed at the start, bounded by snapshots.

    segment n      checkpoint · commands · commands · commands
    segment n+1    checkpoint · begin · items · items · end · commands · ...
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^ SNAPSHOT batches

A snapshot is a list of commands that builds the state from nothing.  It starts a segment of its
own, and counts from the moment when its end is in the log: until then it is ignored, and the
commands before it are still there.

Where a log has replicas, `Keeper` is how it is written: through whoever knows them.

Invariants
    L1  replay gives every command that was appended and answered, in order: those of the newest
        complete snapshot, then those appended after it
    L2  `append` returns when the commands are kept (durable, or committed where there are
        replicas); commands of one call are one batch, so a crash keeps all of them or none
    L3  segments before a snapshot go only after the whole snapshot is kept
    L4  a snapshot counts only if its end agrees with its items in number and checksum
    L5  nothing here takes long in one go: reading and writing a snapshot go in steps

Not here: what the commands mean (controller, groups), the log itself (log).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from quipu.model.batch_types import SNAPSHOT, BatchType
from quipu.model.errors import CorruptLog
from quipu.model.ids import Epoch, LogOffset
from quipu.runtime.clock import Clock
from quipu.storage.log import Log, StoredBatch
from quipu.wire.record_batch import Record, decode_records

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

EPOCH: Final = Epoch(0)  # one writer, who never changes


class _Tally(NamedTuple):
    """What the end of a snapshot must agree with (L4)."""

    item_count: int = 0
    checksum: int = 0

    def with_item(self, value: bytes) -> "_Tally":
        return _Tally(self.item_count + 1, crc32c(value, self.checksum))


class Keeper(Protocol):
    """Who writes to the log, and knows when what was written is safe."""

    def append(self, batch_type: BatchType, records: Sequence[Record], now_ms: int) -> None: ...
    def roll(self, now_ms: int) -> None: ...
    async def kept(self) -> None:
        """Return when everything in the log is kept; raise if it will not be."""
        ...


class LogKeeper:
    """Of a log without replicas: what is durable is kept."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def append(self, batch_type: BatchType, records: Sequence[Record], now_ms: int) -> None:
        self._log.append_records(batch_type, records, epoch=EPOCH, now_ms=now_ms)

    def roll(self, now_ms: int) -> None:
        self._log.roll(now_ms)

    async def kept(self) -> None:
        await self._log.flush()


class StateLog:
    """Commands of one batch type over a log of their own."""

    def __init__(
        self, log: Log, batch_type: BatchType, clock: Clock, keeper: Keeper | None = None
    ) -> None:
        if log.failure is not None:
            raise log.failure
        self._log = log
        self._batch_type = batch_type
        self._clock = clock
        self._keeper = LogKeeper(log) if keeper is None else keeper
        self._pending = 0  # appends that are not durable yet
        self._in_snapshot = False  # one is being written
        self.commands_size = 0  # of commands since the last snapshot: what replaying them costs

    def replay(self, apply: Apply) -> None:
        """Give every command to `apply` (L1)."""
        for _ in self.replaying(apply):
            pass

    def replaying(self, apply: Apply) -> Iterator[None]:
        """The same, batch by batch: for a loop that has other things to do."""
        start: LogOffset | None = None
        for found in self._snapshots():
            start = start if found is None else found
            yield
        if start is None and self._begins_late():
            raise CorruptLog(
                f"{self._log.name}: its first segments are gone and no snapshot is complete; "
                "restore the directory from a copy, or look at it with `quipu log show`")
        self.commands_size = 0
        in_snapshot = start is not None
        for batch in self._log.read_stored(start or LogOffset(0)):
            if batch.header.batch_type == self._batch_type:
                in_snapshot = False
                for number, record in enumerate(_records(batch), 1):
                    apply(_value(record))
                    self.commands_size += COMMAND_SIZE + len(_value(record))
                    if number % RECORDS_PER_STEP == 0:
                        yield  # L5
            elif batch.header.batch_type == SNAPSHOT and in_snapshot:
                for number, record in enumerate(_records(batch), 1):
                    if record.key == ITEM:
                        apply(_value(record))
                    elif record.key == END:
                        in_snapshot = False  # a later snapshot is not complete
                    if number % RECORDS_PER_STEP == 0:
                        yield  # L5
            yield

    def _begins_late(self) -> bool:
        segments = self._log.segments
        return bool(segments) and segments[0].base_log > 0

    def trimming(self, kept_end: LogOffset) -> Iterator[None]:
        """Drop the segments before the newest snapshot of another writer, batch by batch.

        Only what is kept counts: everything below `kept_end` is.
        """
        start: LogOffset | None = None
        for found in self._snapshots(kept_end):
            start = start if found is None else found
            yield
        if start is not None:
            self._log.drop_segments_before(start)

    async def append(self, commands: Sequence[bytes]) -> None:
        """Append commands as one batch; returns when they are durable (L2)."""
        assert commands, "nothing to append"
        assert not self._in_snapshot, f"{self._log.name}: commands appended during a snapshot"
        size = self._append(self._batch_type, [(None, command) for command in commands])
        self.commands_size += size + COMMAND_SIZE * len(commands)
        self._pending += 1
        try:
            await self._keeper.kept()
        finally:
            self._pending -= 1

    async def snapshot(self, commands: Iterable[bytes]) -> None:
        """Replace everything before by `commands`, which build the state as it is now.

        The state must be that of all commands appended so far: no append may be under way.  It is
        written in steps (L5), so the state may change meanwhile: what changes it must be appended
        after this returns, and say no less when it is replayed on top of the newer state.
        """
        assert self._pending == 0, f"{self._log.name}: snapshot while commands are appended"
        self._keeper.roll(self._clock.now_ms())
        start = self._log.log_end
        self._in_snapshot = True
        try:
            await self._write_snapshot(commands)
        finally:
            self._in_snapshot = False
        self.commands_size = 0
        await self._keeper.kept()
        removed = self._log.drop_segments_before(start)  # L3
        _log.info("%s: snapshot at log offset %d, %d segments removed",
                  self._log.name, start, removed)

    async def _write_snapshot(self, commands: Iterable[bytes]) -> None:
        """Begin, items in batches of bounded size, end; all in the log when this returns."""
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
        records = [Record(key, value, (), now_ms) for key, value in pairs]
        self._keeper.append(batch_type, records, now_ms)
        return sum(len(value) for _, value in pairs)

    # -- reading

    def _snapshots(self, end: LogOffset | None = None) -> Iterator[LogOffset | None]:
        """Where each complete snapshot below `end` begins (L4); None for a batch that ends none."""
        begun: LogOffset | None = None
        tally = _Tally()
        for batch in self._log.read_stored():
            if end is not None and batch.header.next_log_offset > end:
                return
            if batch.header.batch_type == self._batch_type:
                begun = None  # commands follow a snapshot that has no end: its writer died
            found: LogOffset | None = None
            for record in _records(batch) if batch.header.batch_type == SNAPSHOT else ():
                if record.key == BEGIN:
                    begun, tally = LogOffset(batch.header.log_offset), _Tally()
                elif record.key == ITEM:
                    tally = tally.with_item(_value(record))
                elif record.key == END and begun is not None:
                    if _value(record) == _END_VALUE.pack(*tally):
                        found = begun
                    begun = None
            yield found


def _records(batch: StoredBatch) -> Iterator[Record]:
    return decode_records(batch.batch, size_max=RECORDS_SIZE_MAX)


def _value(record: Record) -> bytes:
    return record.value if record.value is not None else b""
