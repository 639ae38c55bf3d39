"""What a leader does at its start, when it is alone, and when voters change."""

from quipu.model.batch_types import CONFIGURATION
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.leader import LeaderState
from quipu.raft.membership import Configuration
from quipu.raft.messages import AppendEntries, AppendEntriesResponse, HardState, VoteRequest
from tests.raft.test_core import core, entry
from tests.raft.worlds import TIMING, World, elected


def test_a_leader_starts_with_an_entry_of_its_own_term() -> None:
    """T7: raft.A1, raft.D2; until it is committed no read is confirmed."""
    world = World(1, 3, trouble=0.0)
    member = world.members[NodeId(1)]
    member.raft.campaign()
    world.settle(member)
    while not member.raft.is_leader:
        for each in world.up():
            world.flush(each)
        world.deliver()
    role = member.raft.role
    assert isinstance(role, LeaderState)
    first = member.raft.log.entry(role.term_start)
    assert (first.term, first.batch_type) == (member.raft.term, CONFIGURATION)
    assert not role.has_committed_in_term

    world.read(member)
    assert world.reads_done == 0
    world.run(50)
    assert role.has_committed_in_term
    assert world.reads_done == 1


def test_a_leader_without_a_majority_steps_down() -> None:
    """T7: raft.A3; an election timeout after it last heard from most voters, and not before."""
    world = World(1, 3, trouble=0.0)
    leader = elected(world, 1)
    for other in (2, 3):
        world.cut |= {(NodeId(1), NodeId(other)), (NodeId(other), NodeId(1))}
    world.run(TIMING.election_timeout_ms // 2)
    assert leader.raft.is_leader
    world.run(TIMING.election_timeout_ms)
    assert not leader.raft.is_leader


def test_a_leader_does_not_remove_itself() -> None:
    """T7: raft.C6, raft.A4; it transfers its leadership first."""
    world = World(1, 3, trouble=0.0)
    leader = elected(world, 1)
    assert leader.raft.change_configuration(Configuration.of([2, 3])) is None
    assert leader.raft.change_configuration(Configuration.of([1, 2])) is not None
    assert leader.raft.is_voter


def test_one_change_of_voters_at_a_time() -> None:
    """T7: raft.C2; the next waits until the one before is committed."""
    world = World(1, 3, trouble=0.0)
    leader = elected(world, 1)
    assert leader.raft.change_configuration(Configuration.of([1, 2])) is not None
    assert leader.raft.change_configuration(Configuration.of([1, 2])) is None
    world.calm()
    world.run(50)
    assert leader.raft.change_configuration(Configuration.of([1, 2, 3])) is not None


def test_a_new_voter_has_every_committed_entry_first() -> None:
    """T7: raft.C4; one that has not been heard of is not added."""
    world = World(1, 3, observers=1, trouble=0.0)
    world.crash(world.members[NodeId(101)])
    leader = elected(world, 1)
    four = Configuration.of([1, 2, 3, 101])
    assert leader.raft.change_configuration(four) is None
    world.restart(world.members[NodeId(101)])
    world.run(200)
    assert leader.raft.change_configuration(four) is not None


def test_a_configuration_is_sent_when_it_is_durable_at_the_leader() -> None:
    """T7: raft.C5; other entries are sent at once."""
    world = World(1, 3, trouble=0.0)
    leader = elected(world, 1)
    world.propose(leader)
    assert any(isinstance(message, AppendEntries) and message.entries
               for _, _, message in world.wire)
    world.calm()
    world.change(leader, (1, 2))
    assert not any(isinstance(message, AppendEntries) and message.entries
                   for _, _, message in world.wire)
    world.flush(leader)
    assert any(isinstance(message, AppendEntries) and message.entries
               for _, _, message in world.wire)


def test_a_node_that_lost_its_disk_elects_nobody_who_has_entries() -> None:
    """T7: raft.R5; it may have acknowledged entries that this candidate lacks."""
    for last_index, expected in ((1, False), (0, True)):
        raft = core()  # nothing stored, though others vote
        raft.step(NodeId(2), VoteRequest(Term(1), RaftIndex(last_index), Term(last_index),
                                         is_pre_vote=False, is_transfer=False))
        assert [reply.is_granted for _, reply in raft.ready().messages_when_durable] == [expected]


def test_an_acknowledgement_waits_for_the_disk() -> None:
    """T7: raft.F2, raft.R2; it is handed out with the entries that it speaks of."""
    raft = core(hard_state=HardState(Term(1)))
    raft.step(NodeId(2), AppendEntries(
        Term(1), RaftIndex(0), Term(0), RaftIndex(0), RaftIndex(1), (entry(1, 1),)))
    ready = raft.ready()
    assert ready.messages == []
    assert [kept.index for kept in ready.entries] == [1]
    ((_, response),) = ready.messages_when_durable
    assert isinstance(response, AppendEntriesResponse)
    assert (response.is_success, response.index) == (True, 1)
