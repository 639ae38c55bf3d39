"""A partition log whose answers come late, as those of a tier or of a diskless topic do.

It wraps a log that answers at once.  Appends are copied and carried out some turns of the loop
later, and then know their offsets; a read of bytes that are there is answered with a `PendingRead`
first.  A test may hold the bytes back with `holds_reads`, and let them arrive with `arrive`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from quipu.model.errors import QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import (
    AppendDone,
    AppendResult,
    CheckedRecords,
    PartitionLog,
    PendingAppend,
    PendingRead,
    ReadResult,
)

TURNS = 3


def turns_later(count: int, call: Callable[[], None]) -> None:
    """Call `call` after `count` turns of the loop."""
    loop = asyncio.get_running_loop()
    if count == 0:
        call()
    else:
        loop.call_soon(turns_later, count - 1, call)


class LateAppend:
    """A batch that was copied, and is not appended yet."""

    def __init__(self) -> None:
        self._outcome: AppendResult | QuipuError | None = None
        self._done: AppendDone | None = None

    def when_done(self, done: AppendDone) -> None:
        assert self._done is None, "asked twice"
        self._done = done
        if self._outcome is not None:
            done(self._outcome)

    def complete(self, outcome: AppendResult | QuipuError) -> None:
        assert self._outcome is None, "completed twice"
        self._outcome = outcome
        if self._done is not None:
            self._done(outcome)


class LateRead:
    """Bytes on their way: the read of `offset` is answered once they have arrived."""

    def __init__(self, log: "LateLog", offset: int) -> None:
        self._log = log
        self.offset = offset
        self.has_arrived = False
        self.is_cancelled = False
        self._notify: Callable[[], None] | None = None

    def when_arrived(self, arrived: Callable[[], None]) -> None:
        assert self._notify is None, "asked twice"
        self._notify = arrived
        if self.has_arrived and not self.is_cancelled:
            arrived()

    def cancel(self) -> None:
        self.is_cancelled = True
        self._notify = None
        self._log.forget(self)

    def arrive(self) -> None:
        if not self.has_arrived:
            self.has_arrived = True
            if self._notify is not None and not self.is_cancelled:
                self._notify()


class LateLog:
    """A `PartitionLog` whose appends and reads are answered some turns later."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.reads: list[LateRead] = []  # that nobody has cancelled
        self.read_count = 0  # that were not answered at once, ever
        self.holds_reads = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(
        self, batch: memoryview, now_ms: int, acks: int, timeout_ms: int,
        checked: CheckedRecords | QuipuError | None = None,
    ) -> AppendResult | PendingAppend:
        copy, late = memoryview(bytearray(batch)), LateAppend()  # it is borrowed

        def carry_out() -> None:
            try:
                appending = self._log.append(copy, now_ms, acks, timeout_ms, checked)
            except QuipuError as error:
                late.complete(error)
                return
            if isinstance(appending, AppendResult):
                late.complete(appending)
            else:
                appending.when_done(late.complete)

        turns_later(TURNS, carry_out)
        return late

    def read(
        self, offset: Offset, max_bytes: int, *, min_one: bool, dirty: bool = False
    ) -> ReadResult | PendingRead:
        result = self._log.read(offset, max_bytes, min_one=min_one, dirty=dirty)
        assert isinstance(result, ReadResult)
        if not result.buffers:
            return result  # the end, an error, or no room: nothing has to come for that
        if any(read.offset == offset and read.has_arrived for read in self.reads):
            return result
        late = LateRead(self, offset)
        self.reads.append(late)
        self.read_count += 1
        if not self.holds_reads:
            turns_later(TURNS, late.arrive)
        return late

    def forget(self, read: LateRead) -> None:
        if read in self.reads:
            self.reads.remove(read)

    def arrive(self) -> None:
        """Let all bytes arrive that were held back."""
        for read in list(self.reads):
            read.arrive()
