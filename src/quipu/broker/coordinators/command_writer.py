"""The one writer of a shard's log: keeps the order, and writes waiting commands together.

Invariants
    broker.coordinators.W1  commands are in the log in the order in which they were given to
                            `append`
    broker.coordinators.W2  `done` is called in that order too, exactly once: after the commands are
                            durable, or with an error
    broker.coordinators.W3  a snapshot is taken while no append is under way; commands that are
                            added meanwhile wait for it
    broker.coordinators.W4  the queue is bounded: callers check `is_full` before they append
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from quipu.model.errors import QuipuError
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.spawn import spawn
from quipu.storage.state_log import COMMAND_SIZE

_log = logging.getLogger(__name__)

SNAPSHOT_SIZE: Final = 8 << 20  # bytes of commands, as StateLog counts, before a snapshot is taken
QUEUE_SIZE_MAX: Final = 64 << 20  # about how many bytes may wait to be written
BATCH_SIZE_MAX: Final = 1 << 20  # about how many bytes are written together

Done = Callable[[Exception | None], None]


CommandT = TypeVar("CommandT")


class CommandLog(Protocol[CommandT]):
    """The log of a shard: commands, or records with keys (command_log.py, record_log.py)."""

    @property
    def commands_size(self) -> int:
        """Bytes since the last snapshot; 0 if the log is kept small by other means."""
        ...

    @property
    def must_snapshot(self) -> bool:
        """Whether a snapshot has to be written before anything is appended."""
        ...

    def size_of(self, command: CommandT) -> int:
        """Bytes of a command."""
        ...

    async def load(self, apply: Callable[[CommandT], None]) -> None: ...
    async def append(self, commands: Sequence[CommandT]) -> None: ...
    async def snapshot(self, commands: Iterable[CommandT]) -> None: ...
    def close(self) -> None: ...


class _Append(NamedTuple, Generic[CommandT]):
    commands: Sequence[CommandT]
    done: Done
    size: int


class CommandWriter(Generic[CommandT]):
    """Appends commands to one log, and replaces them by a snapshot when there are many."""

    def __init__(
        self,
        name: str,
        log: CommandLog[CommandT],
        snapshot: Callable[[], Iterable[CommandT]],
        *,
        snapshot_size: int = SNAPSHOT_SIZE,
    ) -> None:
        """`snapshot` returns commands that build the state from nothing."""
        self._name = name  # of the partition, for log lines
        self._log = log
        self._snapshot = snapshot
        self._snapshot_size = snapshot_size
        self._last_snapshot_size = 0
        self._failed_size = 0  # of the commands when a snapshot last failed
        self._queue: deque[_Append[CommandT]] = deque()
        self._queue_size = 0
        self._limited = LimitedLog(_log)
        self._writer: asyncio.Task[None] | None = None

    async def load(self, apply: Callable[[CommandT], None]) -> None:
        """Call `apply` with every command of the log."""
        await self._log.load(apply)

    def close(self) -> None:
        """Write nothing more: waiting commands fail."""
        self._log.close()

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait to be written (broker.coordinators.W4)."""
        return self._queue_size > QUEUE_SIZE_MAX

    def append(self, commands: Sequence[CommandT], done: Done) -> None:
        """Write `commands`, then call `done` (broker.coordinators.W1, W2)."""
        assert commands
        size = sum(map(self._log.size_of, commands))
        self._queue.append(_Append(commands, done, size))
        self._queue_size += size
        if self._writer is None:
            self._writer = spawn(self._write(), f"write {self._name}")

    async def drained(self) -> None:
        """Return when all commands given so far are written, or have failed."""
        while self._writer is not None:
            await asyncio.shield(self._writer)

    async def _write(self) -> None:
        try:
            while self._queue:
                batch, size = self._take()
                error = await self._write_together(batch)
                self._queue_size -= size
                for entry in batch:
                    entry.done(error)  # broker.coordinators.W2
                await self._snapshot_if_due()  # broker.coordinators.W3: no append is under way
        finally:
            self._writer = None

    def _take(self) -> tuple[list[_Append[CommandT]], int]:
        """Take the appends that are written next, up to BATCH_SIZE_MAX; and their bytes."""
        batch: list[_Append[CommandT]] = []
        size = 0
        while self._queue and size < BATCH_SIZE_MAX:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch, size

    async def _write_together(self, batch: list[_Append[CommandT]]) -> Exception | None:
        try:
            if self._log.must_snapshot:
                await self._log.snapshot(self._measured())
            await self._log.append([command for entry in batch for command in entry.commands])
        except QuipuError as error:
            self._limited.warning(
                "not kept", "%s: %d appends of commands failed: %s", self._name, len(batch), error)
            return error
        except Exception as error:  # noqa: BLE001 the callbacks must be called in any case
            self._limited.exception(
                "not written", "%s: %d appends of commands failed", self._name, len(batch))
            return error
        return None

    async def _snapshot_if_due(self) -> None:
        """Take a snapshot when the commands exceed both SNAPSHOT_SIZE and the last snapshot."""
        log = self._log
        due_size = max(self._snapshot_size, self._last_snapshot_size)
        if log.commands_size < self._failed_size + due_size:
            return
        self._failed_size = log.commands_size  # if this fails, not again for every append
        try:
            await log.snapshot(self._measured())
            self._failed_size = 0
        except QuipuError as error:
            _log.warning("%s: a snapshot could not be written: %s", self._name, error)
        except Exception:  # noqa: BLE001 the commands are still there; a later append tries again
            _log.exception("%s: a snapshot could not be written", self._name)

    def _measured(self) -> Iterator[CommandT]:
        self._last_snapshot_size = 0
        for command in self._snapshot():
            self._last_snapshot_size += COMMAND_SIZE + self._log.size_of(command)
            yield command
