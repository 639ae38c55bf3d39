"""What the quorum and those around it promise each other: the seams, and what can be seen.

    StateMachine   what is replicated; the quorum calls it, in order, on the loop
    Peers          how nodes reach each other: what the quorum needs of a `PeerNet`
    QuorumConfig   who this node is, and how patient
    QuorumView     what DescribeQuorum tells
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quipu.model.errors import Code, Kind, RequestError
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.model.settings import BrokerSettings
from quipu.raft.admission import Checks
from quipu.runtime.connection import Buffer
from quipu.runtime.peer_net import Handler, PeerListener


class NotController(RequestError):
    """This node does not lead the quorum, or stopped to before the outcome was known."""

    code = Code.NOT_CONTROLLER
    kind = Kind.REFRESH


class StateMachine(Checks, Protocol):
    """The state that the quorum replicates.  Nothing here may wait."""

    def apply(self, index: RaftIndex, commands: Sequence[bytes]) -> None:
        """Take in one decision.  Called once for each, in order, on every node alike."""
        ...

    def snapshot(self) -> Iterable[bytes]:
        """Commands that build the state as it is now from nothing."""
        ...

    def restore(self, items: Iterable[bytes]) -> None:
        """Replace the state by the one that `items`, which some `snapshot` gave, build."""
        ...

    def leadership(self, is_leader: bool) -> None:  # noqa: FBT001 a fact that is told, not a flag
        """This node began to lead, the state holding all that was ever decided; or it stopped."""
        ...


class Peers(Protocol):
    """The part of `PeerNet` that the quorum needs."""

    def on(self, kind: int, handler: Handler) -> None: ...
    def send(self, to: NodeId, kind: int, buffers: list[Buffer]) -> bool: ...
    def watch(self, listener: PeerListener) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Who this node is, and how patient."""

    node_id: NodeId
    voters: tuple[NodeId, ...]  # where the log does not say yet
    election_timeout_ms: int = 1000
    heartbeat_interval_ms: int = 200
    image_due_size: int = 4 << 20  # bytes of commands after which an image is worth its while
    entries_kept: int = 1000  # that an image holds too: for followers who are not far behind

    @classmethod
    def of(cls, settings: BrokerSettings) -> "QuorumConfig":
        """As the settings have it; a node without voters is a quorum of its own."""
        voters = tuple(NodeId(voter.node_id) for voter in settings.controller_quorum_voters)
        return cls(
            node_id=settings.own_id, voters=voters or (settings.own_id,),
            election_timeout_ms=settings.controller_quorum_election_timeout_ms,
            heartbeat_interval_ms=settings.controller_quorum_heartbeat_interval_ms)


class Predecessor(NamedTuple):
    """Who led before, and since when no majority can have confirmed anybody but this node."""

    node_id: NodeId
    led_until: float  # in the clock's monotonic seconds, at the latest


class ReplicaView(NamedTuple):
    """One node that holds the log, as far as the one who tells knows; -1 where it does not."""

    node_id: NodeId
    log_end: int  # the index after its last entry
    last_fetch_ms: int  # when it was last heard of
    last_caught_up_ms: int  # when it last had every entry


class QuorumView(NamedTuple):
    """The quorum as one of its nodes sees it; only its leader knows how far the others are."""

    leader: NodeId | None
    term: Term
    committed: RaftIndex
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
