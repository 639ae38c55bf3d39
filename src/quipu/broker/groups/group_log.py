"""The way to the group log: one writer, which keeps the order and writes together what can be.

Invariants
    W1  commands are in the log in the order in which they were given to `append`
    W2  `done` is called in that order too, after the commands are durable, or with why they are
        not; exactly once
    W3  a snapshot is taken when no append is under way; what is given meanwhile waits for it
    W4  what waits is bounded: who gives more is asked to look at `is_full` first
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from quipu.model.errors import QuipuError
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.spawn import spawn
from quipu.storage.state_log import COMMAND_SIZE

_log = logging.getLogger(__name__)

SNAPSHOT_SIZE: Final = 8 << 20  # of commands, as StateLog counts, that make a snapshot worthwhile
QUEUE_SIZE_MAX: Final = 64 << 20  # bytes that wait to be written, about
BATCH_SIZE_MAX: Final = 1 << 20  # bytes that are written together, about

Done = Callable[[Exception | None], None]


class CommandLog(Protocol):
    """What is asked of the log; see `shard_log.ShardLog`."""

    @property
    def commands_size(self) -> int: ...
    async def load(self, apply: Callable[[bytes], None]) -> None: ...
    async def append(self, commands: Sequence[bytes]) -> None: ...
    async def snapshot(self, commands: Iterable[bytes]) -> None: ...
    def close(self) -> None: ...


class _Entry(NamedTuple):
    commands: Sequence[bytes]
    done: Done


class GroupLog:
    """The writer."""

    def __init__(
        self,
        log: CommandLog,
        image: Callable[[], Iterable[bytes]],
        *,
        snapshot_size: int = SNAPSHOT_SIZE,
    ) -> None:
        self._log = log
        self._image = image  # commands that build the state from nothing
        self._snapshot_size = snapshot_size
        self._image_size = 0
        self._failed_size = 0  # of the commands when a snapshot last failed
        self._queue: deque[_Entry] = deque()
        self._queue_size = 0
        self._limited = LimitedLog(_log)
        self._writer: asyncio.Task[None] | None = None

    async def load(self, apply: Callable[[bytes], None]) -> None:
        """Give `apply` what the log holds."""
        await self._log.load(apply)

    def close(self) -> None:
        """Write nothing more; who waits is told."""
        self._log.close()

    @property
    def is_full(self) -> bool:
        """Does more wait than should (W4)?"""
        return self._queue_size > QUEUE_SIZE_MAX

    def append(self, commands: Sequence[bytes], done: Done) -> None:
        """Write `commands`, then call `done` (W1, W2)."""
        assert commands
        self._queue.append(_Entry(commands, done))
        self._queue_size += sum(map(len, commands))
        if self._writer is None:
            self._writer = spawn(self._write(), "group log")

    async def drained(self) -> None:
        """Return when everything that was given has been written."""
        while self._writer is not None:
            await asyncio.shield(self._writer)

    async def _write(self) -> None:
        try:
            while self._queue:
                batch, size = self._take()
                error = await self._write_together(batch)
                self._queue_size -= size
                for entry in batch:
                    entry.done(error)
                await self._snapshot_if_due()
        finally:
            self._writer = None

    def _take(self) -> tuple[list[_Entry], int]:
        """What is written next: all that waits, up to a size; and that size."""
        batch: list[_Entry] = []
        size = 0
        while self._queue and size < BATCH_SIZE_MAX:
            batch.append(self._queue.popleft())
            size += sum(map(len, batch[-1].commands))
        return batch, size

    async def _write_together(self, batch: list[_Entry]) -> Exception | None:
        try:
            await self._log.append([command for entry in batch for command in entry.commands])
        except QuipuError as error:
            self._limited.warning(
                "not kept", "groups: %d changes could not be kept: %s", len(batch), error)
            return error
        except Exception as error:  # noqa: BLE001 whatever it is, who waits must hear of it (W2)
            self._limited.exception(
                "not written", "groups: %d changes could not be written", len(batch))
            return error
        return None

    async def _snapshot_if_due(self) -> None:
        """Keep the log bounded: by the image's own size or SNAPSHOT_SIZE, whichever is more."""
        log = self._log
        due_size = max(self._snapshot_size, self._image_size)
        if log.commands_size < self._failed_size + due_size:
            return
        self._failed_size = log.commands_size  # if this fails, not again for every append
        try:
            await log.snapshot(self._measured())
            self._failed_size = 0
        except QuipuError as error:
            _log.warning("groups: no snapshot could be kept: %s", error)
        except Exception:  # noqa: BLE001 the commands are still there; a later append tries again
            _log.exception("groups: no snapshot could be written")

    def _measured(self) -> Iterator[bytes]:
        self._image_size = 0
        for command in self._image():
            self._image_size += COMMAND_SIZE + len(command)
            yield command
