"""The protocol between `cluster` and the quorum, which broker/quorum implements."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from quipu.broker.quorum.contract import PreviousLeader, QuorumView
from quipu.model.ids import NodeId, RaftIndex


class Consensus(Protocol):
    """A log of commands that all nodes agree on, and apply to their `StateMachine` in order."""

    @property
    def leader(self) -> NodeId | None:
        """The leader, as far as this node knows."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, with every entry of earlier terms applied."""
        ...

    @property
    def previous_leader(self) -> PreviousLeader | None:
        """The leader before this node, and until when voters can have confirmed it, if known.

        Every request that an earlier leader confirmed had come before that moment.
        """
        ...

    @property
    def last_applied(self) -> RaftIndex: ...

    @property
    def refused_count(self) -> int:
        """Messages of other nodes that were rejected."""
        ...

    @property
    def voters(self) -> tuple[NodeId, ...]: ...

    async def start(self) -> None: ...
    async def stop(self, *, transfer: bool = False) -> None: ...

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        """Returns when `commands` are applied here; raises NotController if it is not known."""
        ...

    async def barrier(self) -> None:
        """Returns if this node still led after the call; else raises NotController."""
        ...

    def describe(self) -> QuorumView:
        """The voters and observers, and the progress of each, as far as this node knows."""
        ...

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = ...,
        check: Callable[[], None] = ...,
    ) -> None:
        """Returns when `voters` are the quorum; NotController if this node is removed itself."""
        ...

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        """Returns when the entry at `index` is applied here; raises TimeoutError."""
        ...
