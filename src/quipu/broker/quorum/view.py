"""What can be seen of a quorum from one of its nodes."""

from quipu.broker.quorum.contract import QuorumView, ReplicaView
from quipu.model.ids import NodeId
from quipu.raft.core import Raft
from quipu.raft.leader import Leader
from quipu.raft.progress import Progress
from quipu.runtime.clock import Clock


def describe(raft: Raft, clock: Clock) -> QuorumView:
    """Who takes part, and how far each is; only the leader knows of others."""
    peers = raft.role.replication.peers if isinstance(raft.role, Leader) else {}
    now_ms = clock.now_ms()
    passed_ms = now_ms - int(clock.monotonic() * 1000)  # from the core's time to the wall's

    def view(node_id: NodeId) -> ReplicaView:
        if node_id == raft.node_id:
            return ReplicaView(node_id, raft.log.last_index + 1, now_ms, now_ms)
        return _peer_view(node_id, peers.get(node_id), passed_ms)

    voters = raft.configuration.voters
    observers = sorted({raft.node_id, *peers} - set(voters))
    return QuorumView(
        leader=raft.leader, term=raft.term, committed=raft.log.committed,
        voters=tuple(map(view, voters)), observers=tuple(map(view, observers)))


def _peer_view(node_id: NodeId, progress: Progress | None, passed_ms: int) -> ReplicaView:
    if progress is None:
        return ReplicaView(node_id, -1, -1, -1)
    caught_up_ms = progress.caught_up_ms
    return ReplicaView(
        node_id, progress.match + 1, progress.heard_ms + passed_ms,
        caught_up_ms + passed_ms if caught_up_ms >= 0 else -1)
