"""The way to the group log: one writer, which keeps the order and writes together what can be.

Invariants
    W1  commands are in the log in the order in which they were given to `append`
    W2  `done` is called in that order too, after the commands are durable, or with why they are
        not; exactly once
    W3  a snapshot is taken when no append is under way
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from quipu.model.errors import QuipuError
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

SNAPSHOT_SIZE: Final = 16 << 20  # bytes of commands after which a snapshot is worth its while
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
        self._queue: deque[_Entry] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def load(self, apply: Callable[[bytes], None]) -> None:
        """Give `apply` what the log holds."""
        await self._log.load(apply)

    def close(self) -> None:
        """Write nothing more; who waits is told."""
        self._log.close()

    def append(self, commands: Sequence[bytes], done: Done) -> None:
        """Write `commands`, then call `done` (W1, W2)."""
        assert commands
        self._queue.append(_Entry(commands, done))
        if self._writer is None:
            self._writer = spawn(self._write(), "group log")

    async def drained(self) -> None:
        """Return when everything that was given has been written."""
        while self._writer is not None:
            await asyncio.shield(self._writer)

    async def _write(self) -> None:
        try:
            while self._queue:
                batch = self._take()
                error = await self._write_together(batch)
                for entry in batch:
                    entry.done(error)
                await self._snapshot_if_due()
        finally:
            self._writer = None

    def _take(self) -> list[_Entry]:
        """What is written next: all that waits, up to a size."""
        batch, size = [self._queue.popleft()], 0
        while self._queue and size < BATCH_SIZE_MAX:
            size += sum(map(len, batch[-1].commands))
            batch.append(self._queue.popleft())
        return batch

    async def _write_together(self, batch: list[_Entry]) -> Exception | None:
        try:
            await self._log.append([command for entry in batch for command in entry.commands])
        except QuipuError as error:
            _log.warning("groups: %d changes could not be kept: %s", len(batch), error)
            return error
        except Exception as error:  # noqa: BLE001 whatever it is, who waits must hear of it (W2)
            _log.exception("groups: %d changes could not be written", len(batch))
            return error
        return None

    async def _snapshot_if_due(self) -> None:
        """Keep the log bounded: by the image's own size or SNAPSHOT_SIZE, whichever is more."""
        log = self._log
        if log.commands_size < max(self._snapshot_size, self._image_size):
            return
        try:
            await log.snapshot(self._measured())
        except QuipuError as error:
            _log.warning("groups: no snapshot could be kept: %s", error)
        except Exception:  # noqa: BLE001 the commands are still there; the next append tries again
            _log.exception("groups: no snapshot could be written")

    def _measured(self) -> Iterator[bytes]:
        self._image_size = 0
        for command in self._image():
            self._image_size += len(command)
            yield command
