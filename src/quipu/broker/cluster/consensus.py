"""What the cluster asks of the quorum; see broker/quorum, which gives it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from quipu.broker.quorum.contract import Predecessor, QuorumView
from quipu.model.ids import NodeId, RaftIndex


class Consensus(Protocol):
    """A log of commands that all nodes agree on, and apply to their `StateMachine` in order."""

    @property
    def leader(self) -> NodeId | None:
        """Who leads, as far as this node knows."""
        ...

    @property
    def is_leader(self) -> bool:
        """Does this node lead, with everything applied that was decided before its reign?"""
        ...

    @property
    def predecessor(self) -> Predecessor | None:
        """Who led before this node, and until when it can have been confirmed, if that is known.

        Whatever any earlier leader confirmed, it was asked before that moment.
        """
        ...

    @property
    def applied(self) -> RaftIndex: ...

    @property
    def refused_count(self) -> int:
        """Messages of other nodes that were not taken."""
        ...

    @property
    def voters(self) -> tuple[NodeId, ...]: ...

    async def start(self) -> None: ...
    async def stop(self, *, transfer: bool = False) -> None: ...

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        """Returns when `commands` are applied here; raises NotController if that is not known."""
        ...

    async def barrier(self) -> None:
        """Returns if this node still led after the call was made; else raises NotController."""
        ...

    def describe(self) -> QuorumView:
        """Who takes part, and how far each is, as far as this node knows."""
        ...

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = ...
    ) -> None:
        """Returns when `voters` are the quorum; raises NotController if this node is to go."""
        ...

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        """Returns when the entry at `index` is applied here; raises TimeoutError."""
        ...
