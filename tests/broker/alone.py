"""A stand-in for the quorum: one node over a log of commands that may be in memory."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from quipu.broker.quorum.contract import QuorumView, ReplicaView, StateMachine
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import NodeId, RaftIndex, Term

_log = logging.getLogger(__name__)

SNAPSHOT_SIZE: Final = 4 << 20  # bytes of commands after which a snapshot is worth its while


class CommandLog(Protocol):
    """What is asked of the metadata log; see `StateLog`."""

    commands_size: int

    def replay(self, apply: Callable[[bytes], None]) -> None: ...
    async def append(self, commands: Sequence[bytes]) -> None: ...
    async def snapshot(self, commands: Iterable[bytes]) -> None: ...


class Alone:
    """See `Consensus`."""

    def __init__(self, machine: StateMachine, log: CommandLog, node_id: NodeId) -> None:
        self._machine = machine
        self._log = log
        self._lock = asyncio.Lock()
        self._image_size = 0  # of the last snapshot
        self.leader: NodeId | None = node_id
        self.is_leader = False
        self.last_applied = RaftIndex(0)
        self.refused_count = 0
        self.previous_leader = None  # it is always the first

    async def start(self) -> None:
        self._log.replay(lambda command: self._apply([command]))
        self.is_leader = True
        self._machine.leadership(True)

    async def stop(self, *, transfer: bool = False) -> None:
        del transfer

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        async with self._lock:
            await self._log.append(commands)
            self._apply(commands)
            await self._snapshot_if_due()
            return self.last_applied

    async def barrier(self) -> None:
        return

    def describe(self) -> QuorumView:
        assert self.leader is not None
        own = ReplicaView(self.leader, self.last_applied + 1, last_fetch_ms=-1,
                          last_caught_up_ms=-1)
        return QuorumView(self.leader, Term(1), self.last_applied, voters=(own,), observers=())

    @property
    def voters(self) -> tuple[NodeId, ...]:
        assert self.leader is not None
        return (self.leader,)

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = 0.0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        check()
        raise RequestError(f"voters {sorted(voters)}: there is nobody else",
                           code=Code.REQUEST_TIMED_OUT)

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        del timeout_seconds
        assert index <= self.last_applied, index

    def _apply(self, commands: Sequence[bytes]) -> None:
        self.last_applied = RaftIndex(self.last_applied + 1)
        self._machine.apply(self.last_applied, commands)

    async def _snapshot_if_due(self) -> None:
        """Keep the log bounded: by the state's own size or SNAPSHOT_SIZE, whichever is more."""
        if self._log.commands_size < max(SNAPSHOT_SIZE, self._image_size):
            return
        image = list(self._machine.snapshot())
        self._image_size = sum(map(len, image))
        try:
            await self._log.snapshot(image)
        except QuipuError:  # nothing is lost: the commands are still there
            _log.exception("no snapshot of the metadata could be written")
