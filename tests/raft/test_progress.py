"""What a leader knows of a follower, and how it makes up for lost messages."""

import pytest

from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.leader import LeaderState
from quipu.raft.messages import AppendEntries
from quipu.raft.progress import Progress, ProgressState
from tests.raft.worlds import World, elected


def test_entries_that_a_follower_has_are_not_sent_again() -> None:
    """T7: raft.P1; the next entry to send lies behind all that is acknowledged."""
    progress = Progress(next_index=RaftIndex(5), heard_ms=0)
    assert progress.matched(RaftIndex(7))
    assert (progress.match_index, progress.next_index) == (7, 8)
    with pytest.raises(AssertionError):
        progress.probe_from(7)
    with pytest.raises(AssertionError):
        progress.invariants(6)  # it cannot have more than its leader


def test_a_rejection_that_is_old_changes_nothing() -> None:
    """T7: raft.P2; a later response has said more."""
    progress = Progress(next_index=RaftIndex(5), heard_ms=0)
    progress.matched(RaftIndex(7))
    assert not progress.rejected(6, 3)
    assert progress.state is ProgressState.REPLICATE
    assert progress.rejected(9, 3)
    assert (progress.state, progress.next_index) == (ProgressState.PROBE, 8)


def test_a_lost_message_is_sent_again_after_a_heartbeat() -> None:
    """T7: raft.P2; nothing but time is lost with it."""
    world = World(1, 3, trouble=0.0)
    leader = elected(world, 1)
    world.propose(leader)
    world.wire = [sent for sent in world.wire if not isinstance(sent[2], AppendEntries)]
    world.run(100)
    assert all(member.state == [b"c1"] for member in world.up())
    assert isinstance(leader.raft.role, LeaderState)
    for node_id in (2, 3):
        progress = leader.raft.role.replication.peers[NodeId(node_id)]
        assert progress.match_index == leader.raft.log.last_index
