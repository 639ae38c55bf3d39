"""The protocols that the quorum uses, its settings, and the views that it returns.

    StateMachine     the replicated state; the quorum calls it, in order, on the event loop
    QuorumPeers      the part of `PeerNet` that the quorum uses
    QuorumConfig     this node's id, the first voters, timeouts
    QuorumView       voters and observers, for DescribeQuorum
    PreviousLeader   what a new leader knows of the previous one
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quipu.model.errors import Code, ErrorKind, RequestError
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.model.settings import BrokerSettings
from quipu.raft.admission import Checks
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.peer_net import MessageHandler, PeerListener


class NotController(RequestError):
    """This node does not lead the quorum, or stepped down before the outcome was known."""

    code = Code.NOT_CONTROLLER
    kind = ErrorKind.REFRESH


class StateMachine(Checks, Protocol):
    """The state that the quorum replicates.  No method may block."""

    def apply(self, index: RaftIndex, commands: Sequence[bytes]) -> None:
        """Apply one committed entry.  Called once for each, in order, on every node alike."""
        ...

    def snapshot(self) -> Iterable[bytes]:
        """Return commands that build the present state from an empty one."""
        ...

    def restore(self, items: Iterable[bytes]) -> None:
        """Replace the state by the one that `items`, which a `snapshot` returned, build."""
        ...

    def leadership(self, is_leader: bool) -> None:  # noqa: FBT001 a fact, not a flag
        """Note that this node leads, with every committed entry applied; or that it stopped."""
        ...


class QuorumPeers(Protocol):
    """The part of `PeerNet` that the quorum uses."""

    def on(self, kind: int, handler: MessageHandler) -> None: ...
    def send(self, to: NodeId, kind: int, buffers: list[Buffer]) -> bool: ...
    def watch(self, listener: PeerListener) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """This node's id, the first voters, timeouts and sizes."""

    node_id: NodeId
    voters: tuple[NodeId, ...]  # if the log has no configuration
    election_timeout_ms: int = 1000
    heartbeat_interval_ms: int = 200
    snapshot_due_size: int = 4 << 20  # bytes of commands after which a snapshot is written
    entries_kept: int = 1000  # below a snapshot: for followers that are not far behind

    @classmethod
    def of(cls, settings: BrokerSettings) -> "QuorumConfig":
        """Read the settings; without voters, this node is a quorum of its own."""
        voters = tuple(NodeId(voter.node_id) for voter in settings.controller_quorum_voters)
        return cls(
            node_id=settings.own_id, voters=voters or (settings.own_id,),
            election_timeout_ms=settings.controller_quorum_election_timeout_ms,
            heartbeat_interval_ms=settings.controller_quorum_heartbeat_interval_ms)


class PreviousLeader(NamedTuple):
    """The previous leader, and until when a majority can have confirmed it as leader."""

    node_id: NodeId
    led_until: float  # in the clock's monotonic seconds, at the latest


class ReplicaView(NamedTuple):
    """One node that has the log; -1 where the responding node does not know."""

    node_id: NodeId
    log_end: int  # the index after its last entry
    last_fetch_ms: int  # when its last message came
    last_caught_up_ms: int  # when it last had every entry


class QuorumView(NamedTuple):
    """The quorum as one node sees it; only the leader knows the progress of the others."""

    leader: NodeId | None
    term: Term
    commit_index: RaftIndex
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]
