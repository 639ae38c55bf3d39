"""One shard: the state machine of one partition of an internal topic, while this node leads it.

    leadership begins -> load (replay, wait for commit) -> serve -> leadership ends

Invariants
    broker.coordinators.S1  requests are served from the state machine only while `unavailable` is
                            NONE: all commands of earlier leaders are applied and committed by then
    broker.coordinators.S2  durable commands are applied in the order of the log, before the next
                            snapshot is taken
    broker.coordinators.S3  after `end` the shard stays unavailable; if this node leads again, that
                            is another shard

Not here: the log (command_log.py), the order of writes (command_writer.py), the state machine
(groups/shard.py, for one).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol

from quipu.broker.coordinators.command_writer import CommandLog, CommandT, CommandWriter
from quipu.model.errors import Code, QuipuError
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)

_MOVED: Final = frozenset({Code.NOT_COORDINATOR, Code.NOT_LEADER_OR_FOLLOWER})


class CoordinatorState(Protocol[CommandT]):
    """The state machine of a shard, whose commands are kept in its log."""

    def apply(self, command: CommandT) -> None:
        """Apply one command of the log; a repeated command changes nothing."""
        ...

    def snapshot(self) -> Iterable[CommandT]:
        """Commands that build the state as it is now from nothing."""
        ...

    async def prepare(self) -> None:
        """Bring the state up to date after all commands are applied, before it is served."""
        ...

    async def begin(self) -> None:
        """Start timers: the shard is served from now on."""
        ...


class CoordinatorShard(Generic[CommandT]):
    """Loads a state machine from a partition's log, and keeps its commands there."""

    def __init__(
        self, name: str, log: CommandLog[CommandT], machine: CoordinatorState[CommandT]
    ) -> None:
        self.name = name  # of the partition, for log lines
        self.unavailable = Code.COORDINATOR_LOAD_IN_PROGRESS  # NONE while it is served
        self._machine = machine
        self._writer = CommandWriter(name, log, machine.snapshot)
        self._loading: asyncio.Task[None] | None = None

    # -- life

    def start(self) -> None:
        """Begin to load; see `loaded`."""
        assert self._loading is None, self.name
        self._loading = spawn(self._load(), f"load {self.name}")

    async def loaded(self, timeout_seconds: float | None = None) -> None:
        """Return when the load has succeeded or failed, or after `timeout_seconds`."""
        if self._loading is not None:
            await asyncio.wait([self._loading], timeout=timeout_seconds)

    async def _load(self) -> None:
        """Replay the log and begin to serve; on an error the shard stays unavailable."""
        try:
            await self._writer.load(self._machine.apply)
        except QuipuError as error:
            if self.unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS:
                _log.error("%s cannot be read, and is not served: %s", self.name, error)
                self.unavailable = Code.COORDINATOR_NOT_AVAILABLE
            return
        await self._machine.prepare()
        assert self.unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS  # broker.coordinators.S3
        self.unavailable = Code.NONE  # broker.coordinators.S1
        await self._machine.begin()

    def end(self, code: Code) -> None:
        """Serve no more requests; they get `code` instead."""
        assert code is not Code.NONE
        self.unavailable = code  # broker.coordinators.S3
        if self._loading is not None:
            self._loading.cancel()

    def close(self) -> None:
        """Write nothing any more: another node leads the partition, or will lead it."""
        assert self.unavailable is not Code.NONE, self.name
        self._writer.close()

    async def drained(self) -> None:
        """Return when all commands given to `append` are written, or have failed."""
        await self._writer.drained()

    # -- commands

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait to be written."""
        return self._writer.is_full

    def append(
        self, commands: list[CommandT], done: Callable[[Exception | None], None] = lambda _: None
    ) -> None:
        """Write `commands` as one batch; call `done` when they are durable, or with an error."""
        self._writer.append(commands, done)

    async def keep(
        self, commands: list[CommandT], apply: Callable[[], None] = lambda: None
    ) -> Code:
        """Make `commands` durable as one batch, then call `apply`; returns the client's code."""
        done: asyncio.Future[Code] = asyncio.get_running_loop().create_future()

        def kept(error: Exception | None) -> None:
            if error is None:
                # broker.coordinators.S2: at once, because a snapshot may be taken next.
                apply()
            if not done.done():  # the caller may have been cancelled
                done.set_result(code_of(error))

        if self.is_full:
            return Code.COORDINATOR_NOT_AVAILABLE  # the client tries again
        self.append(commands, kept)
        return await done


def code_of(error: Exception | None) -> Code:
    """The code that a client gets for `error`; NONE if there is none."""
    if error is None:
        return Code.NONE
    moved = isinstance(error, QuipuError) and error.code in _MOVED
    return Code.NOT_COORDINATOR if moved else Code.COORDINATOR_NOT_AVAILABLE
