"""The quorum's driver: durable first, then visible; then applied, told, answered."""

from collections.abc import Iterable, Sequence

from quipu.broker.quorum.contract import Peers, QuorumConfig, QuorumView, StateMachine
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng
from quipu.storage.log import Log


class Quorum:
    """This node's part in the quorum, and the only way to change what it replicates."""

    def __init__(
        self,
        machine: StateMachine,
        config: QuorumConfig,
        *,
        log: Log,
        clock: Clock,
        rng: Rng,
        peers: Peers | None = None,
    ) -> None:
        """`peers` may be missing where this node is the only one."""
        raise NotImplementedError

    async def start(self) -> None:
        """Replay what is stored; a quorum of one leads, all of it applied, when this returns."""
        raise NotImplementedError

    async def stop(self, *, transfer: bool = False) -> None:
        """Take no further part; with `transfer`, let another voter lead first, if one can."""
        raise NotImplementedError

    @property
    def leader(self) -> NodeId | None:
        """Who leads, as far as this node knows."""
        raise NotImplementedError

    @property
    def term(self) -> Term:
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Does this node lead, with everything applied that was decided before its term?"""
        raise NotImplementedError

    @property
    def applied(self) -> RaftIndex:
        raise NotImplementedError

    @property
    def voters(self) -> tuple[NodeId, ...]:
        raise NotImplementedError

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        """Have `commands` decided, all or none; returns its index when applied on this node.

        Raises `NotController` if this node does not lead, or stopped to before it was decided:
        then the outcome is not known.
        """
        raise NotImplementedError

    async def barrier(self) -> None:
        """Return when this node's state holds all that was decided before the call.

        Raises `NotController` if this node does not lead, or cannot tell that it still does.
        """
        raise NotImplementedError

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        """Return when the entry at `index` is applied here; raises `TimeoutError`."""
        raise NotImplementedError

    async def wait_leader(self, timeout_seconds: float) -> NodeId:
        """Return whom this node knows as leader, once it knows one; raises `TimeoutError`."""
        raise NotImplementedError

    async def change_voters(self, voters: Iterable[NodeId]) -> None:
        """Make `voters` the quorum, one change at a time; on the leader only."""
        raise NotImplementedError

    def describe(self) -> QuorumView:
        """Who takes part, and how far each is."""
        raise NotImplementedError
