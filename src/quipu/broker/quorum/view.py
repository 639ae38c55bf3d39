"""Builds the view of the quorum that DescribeQuorum responds with."""

from quipu.broker.quorum.contract import QuorumView, ReplicaView
from quipu.model.ids import NodeId
from quipu.raft.core import Raft
from quipu.raft.leader import LeaderState
from quipu.raft.progress import Progress
from quipu.runtime.clock import Clock


def describe(raft: Raft, clock: Clock) -> QuorumView:
    """Return voters and observers, and the log end of each; only the leader knows others'."""
    peers = raft.role.replication.peers if isinstance(raft.role, LeaderState) else {}
    now_ms = clock.now_ms()
    passed_ms = now_ms - int(clock.monotonic() * 1000)  # from the core's time to wall-clock time

    def view(node_id: NodeId) -> ReplicaView:
        if node_id == raft.node_id:
            return ReplicaView(node_id, raft.log.last_index + 1, now_ms, now_ms)
        return _peer_view(node_id, peers.get(node_id), passed_ms)

    voters = raft.configuration.voters
    observers = sorted({raft.node_id, *peers} - set(voters))
    return QuorumView(
        leader=raft.leader, term=raft.term, commit_index=raft.log.commit_index,
        voters=tuple(map(view, voters)), observers=tuple(map(view, observers)))


def _peer_view(node_id: NodeId, progress: Progress | None, passed_ms: int) -> ReplicaView:
    if progress is None:
        return ReplicaView(node_id, -1, -1, -1)
    caught_up_ms = progress.caught_up_ms
    return ReplicaView(
        node_id, progress.match_index + 1, progress.heard_ms + passed_ms,
        caught_up_ms + passed_ms if caught_up_ms >= 0 else -1)
