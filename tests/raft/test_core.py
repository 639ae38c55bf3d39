"""Raft under faults: what it promises holds after every step, and it gets going again.

The promises are checked in worlds.py; the worlds below differ in what goes wrong.
"""

import random
import time
from typing import Any

import pytest

from quipu.model.batch_types import CONFIGURATION, CONTROLLER
from quipu.model.ids import NO_NODE, NodeId, RaftIndex, Term
from quipu.raft.core import Raft
from quipu.raft.leader import LeaderState
from quipu.raft.log import SafetyLost
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HardState,
    RaftEntry,
    RaftHeartbeat,
    VoteRequest,
    VoteResponse,
)
from quipu.raft.ready import StoredState
from tests.raft.worlds import TIMING, Member, World, elected

STEPS = 900
CHANGES = [(1, 2, 3), (1, 2, 3, 101), (1, 2), (2, 3, 101), (101, 2)]


def recover(world: World) -> Member:
    """Heal; there must be one leader, and one history, before long."""
    world.heal()
    for _ in range(30):
        world.run(200)
        if world.is_agreed():
            break
    leader = world.leader()
    assert leader is not None, "no node leads"
    world.propose(leader)
    world.run(300)
    assert world.is_agreed()
    leader = world.leader()
    assert leader is not None
    missing = [command for command in world.acknowledged if command not in leader.state]
    assert not missing, f"acknowledged and lost: {missing}"
    assert len(leader.state) == len(set(leader.state))
    return leader


@pytest.mark.parametrize("seed", range(20))
def test_three_nodes_under_faults(seed: int) -> None:
    """T7: loss, doubles, reordering, cuts, crashes that forget what was not durable."""
    world = World(seed, 3, observers=1)
    world.chaos(STEPS)
    recover(world)


@pytest.mark.parametrize("seed", range(20))
def test_five_nodes_under_faults(seed: int) -> None:
    """T7: the same with two that may be missing."""
    world = World(1000 + seed, 5, trouble=0.2)
    world.chaos(STEPS, crash=1.5)
    recover(world)


@pytest.mark.parametrize("seed", range(20))
def test_voters_change_under_faults(seed: int) -> None:
    """T7: raft.C2, raft.C4, raft.R3; one voter at a time, under every other fault too."""
    world = World(2000 + seed, 3, observers=2)
    world.chaos(STEPS, changes=CHANGES, change=4.0, transfer=2.0, cut=0.2)
    recover(world)


@pytest.mark.parametrize("seed", range(10))
def test_busy_worlds_decide_much(seed: int) -> None:
    """T7: with few faults there is progress all the time, and snapshots are sent."""
    world = World(3000 + seed, 3, trouble=0.02)
    world.chaos(2000, crash=0.4, cut=0.1, propose=20.0, compact=4.0)
    recover(world)
    assert len(world.acknowledged) > 20


def test_a_voter_that_lost_its_disk_does_not_elect_itself_by_an_old_configuration() -> None:
    """V15: raft.R5; it came back, and was stopped again when it had only the first entries: those
    from when it was the only voter.
    """
    alone = Configuration.of([NodeId(1)])
    first = RaftEntry(RaftIndex(1), Term(1), CONFIGURATION, (alone.encode(),))
    for is_blank in (True, False):
        stored = StoredState(
            hard_state=HardState(Term(3), NO_NODE, is_blank), entries=(first,))
        raft = Raft(NodeId(1), [NodeId(1), NodeId(2), NodeId(3)], stored, timing=TIMING,
                    chance=lambda: 0.5)
        assert raft.is_alone
        raft.campaign()
        raft.tick(10 * TIMING.election_timeout_ms)
        assert raft.is_leader is not is_blank


def test_the_worlds_are_not_idle() -> None:
    """A world in which nothing happens would pass every check."""
    worlds = [World(4000 + seed, 3) for seed in range(5)]
    for world in worlds:
        world.chaos(STEPS)
        recover(world)
    assert sum(len(world.acknowledged) for world in worlds) > 50
    assert sum(world.reads_done for world in worlds) > 10
    assert max(member.raft.term for world in worlds for member in world.up()) > 3


def test_the_same_seed_gives_the_same_world() -> None:
    """V22: one seed, one history."""
    histories = []
    for _ in range(2):
        world = World(7, 5, observers=1)
        world.chaos(STEPS, changes=CHANGES)
        histories.append((world.committed_entries, world.now_ms, world.wire))
    assert histories[0] == histories[1]


# --- single rules ---------------------------------------------------------------------------


def core(**stored: Any) -> Raft:
    """Node 1 of three, with what its disk holds."""
    return Raft(NodeId(1), [NodeId(1), NodeId(2), NodeId(3)], StoredState(**stored), timing=TIMING,
                chance=random.Random(1).random)


def entry(index: int, term: int) -> RaftEntry:
    return RaftEntry(RaftIndex(index), Term(term), CONTROLLER, (b"x",))


def test_a_vote_is_given_once_in_a_term_and_leaves_only_with_its_number() -> None:
    """T7: raft.R1 and raft.R2, also across a restart."""
    raft = core(hard_state=HardState(Term(1)))
    raft.step(NodeId(2), VoteRequest(Term(2), RaftIndex(0), Term(0), is_pre_vote=False,
                                     is_transfer=False))
    raft.step(NodeId(3), VoteRequest(Term(2), RaftIndex(0), Term(0), is_pre_vote=False,
                                     is_transfer=False))
    ready = raft.ready()

    assert ready.messages == []
    assert ready.hard_state is not None
    assert ready.hard_state.vote == 2
    assert [(to, reply.is_granted) for to, reply in ready.messages_when_durable] == [
        (2, True), (3, False)]
    again = core(hard_state=ready.hard_state)
    again.step(NodeId(3), VoteRequest(
        Term(2), RaftIndex(0), Term(0), is_pre_vote=False, is_transfer=False))
    assert [reply.is_granted for _, reply in again.ready().messages_when_durable] == [False]


def test_a_candidate_with_less_gets_no_vote() -> None:
    """T7: raft.E1, by the last term first, then by length."""
    raft = core(hard_state=HardState(Term(3)), entries=(entry(1, 1), entry(2, 3)))
    for last_index, last_term, expected in ((9, 2, False), (1, 3, False), (2, 3, True)):
        raft.step(NodeId(2), VoteRequest(Term(4), RaftIndex(last_index), Term(last_term),
                                         is_pre_vote=True,
                                  is_transfer=False))
        assert [reply.is_granted for _, reply in raft.ready().messages_when_durable] == [expected]


def test_who_hears_from_a_leader_grants_no_vote() -> None:
    """T7: raft.E2; not even the term moves, until the leader is silent for the election timeout."""
    raft = core(hard_state=HardState(Term(1)))
    raft.step(NodeId(2), RaftHeartbeat(Term(1), RaftIndex(0), 1))
    raft.step(NodeId(3), VoteRequest(Term(9), RaftIndex(9), Term(8), is_pre_vote=False,
                                     is_transfer=False))
    assert raft.term == 1

    raft.tick(TIMING.election_timeout_ms - 1)
    raft.step(NodeId(3), VoteRequest(Term(9), RaftIndex(9), Term(8), is_pre_vote=True,
                                     is_transfer=False))
    assert [type(message) for _, message in raft.ready().messages_when_durable][1:] == []
    raft.tick(TIMING.election_timeout_ms)
    raft.step(NodeId(3), VoteRequest(Term(9), RaftIndex(9), Term(8), is_pre_vote=True,
                                     is_transfer=False))
    assert [message.is_granted for _, message in raft.ready().messages_when_durable
            if isinstance(message, VoteResponse)] == [True]


def test_who_follows_a_leader_votes_for_nobody_else_in_its_term() -> None:
    """T7: raft.E2; its vote of this term is still free, and the candidate comes too late."""
    raft = core(hard_state=HardState(Term(1)))
    raft.step(NodeId(2), RaftHeartbeat(Term(2), RaftIndex(0), 1))
    assert raft.vote == NO_NODE
    for is_pre_vote in (True, False):
        raft.step(NodeId(3), VoteRequest(Term(2), RaftIndex(9), Term(2), is_pre_vote=is_pre_vote,
                                  is_transfer=False))

    assert [message.is_granted for _, message in raft.ready().messages_when_durable
            if isinstance(message, VoteResponse)] == [False, False]
    assert (raft.leader, raft.vote) == (2, NO_NODE)


def test_the_own_vote_counts_when_it_is_durable() -> None:
    """T7: raft.E3; else a crash could take it, and the same node elect another one in this term."""
    raft = core(hard_state=HardState(Term(1)))
    raft.become_candidate()
    ready = raft.ready()
    assert ready.hard_state is not None
    assert ready.hard_state.vote == 1
    raft.step(NodeId(2), VoteResponse(raft.term, is_granted=True, is_pre_vote=False))
    assert not raft.is_leader

    raft.persisted(ready.number)

    assert raft.is_leader


def test_who_is_elected_knows_when_others_can_last_have_led() -> None:
    """V15: raft.E4; by the voters' `leaderless_ms`, and by its own."""
    for leaderless_ms, expected in ((40, 960), (399, 601), (900, 600)):
        raft = core(hard_state=HardState(Term(2)))
        raft.tick(600)
        raft.step(NodeId(2), RaftHeartbeat(Term(2), RaftIndex(0), 1))
        raft.now_ms = 1000
        raft.become_candidate()
        raft.persisted(raft.ready().number)
        raft.step(NodeId(2), VoteResponse(
            Term(3), is_granted=True, is_pre_vote=False, leaderless_ms=leaderless_ms))
        assert isinstance(raft.role, LeaderState)
        assert raft.role.previous_leader == 2
        assert raft.role.voters_had_leader_ms == expected


def test_after_a_transfer_others_have_led_until_now() -> None:
    """V15: raft.E4; the voters of a transfer have followed the old leader until now."""
    world = World(1, 3, trouble=0.0)
    first = elected(world, 1)
    world.run(100)
    world.tick(1)
    assert first.raft.transfer_leadership() is not None
    world.settle(first)
    world.calm()
    second = world.leader()
    assert second is not None
    assert second is not first
    assert isinstance(second.raft.role, LeaderState)
    assert world.now_ms - second.raft.role.voters_had_leader_ms <= TIMING.heartbeat_interval_ms


def test_an_own_entry_counts_when_it_is_durable() -> None:
    """T7: raft.A2; with two voters, the other's response alone commits nothing."""
    world = World(1, 2, trouble=0.0)
    leader = elected(world, 1)
    world.propose(leader)
    while world.wire:
        world.deliver()
    for member in world.up():
        if member is not leader:
            world.flush(member)
    while world.wire:
        world.deliver()
    assert leader.state == []

    world.flush(leader)
    assert leader.state == [b"c1"]


def test_an_entry_of_an_older_term_is_committed_only_with_one_of_the_own() -> None:
    """T7: raft.R4; a majority is not enough: a third node could still replace the entry."""
    stored = {"hard_state": HardState(Term(2)), "entries": (entry(1, 1), entry(2, 2))}
    raft = core(**stored)
    raft.become_candidate()
    raft.persisted(raft.ready().number)
    raft.step(NodeId(2), VoteResponse(Term(3), is_granted=True, is_pre_vote=False))
    assert raft.is_leader
    raft.persisted(raft.ready().number)
    raft.step(NodeId(2), _has(3, 2))
    assert raft.log.commit_index == 0

    raft.step(NodeId(2), _has(3, 3))
    assert raft.log.commit_index == 3


def _has(term: int, index: int) -> AppendEntriesResponse:
    return AppendEntriesResponse(Term(term), is_success=True, index=RaftIndex(index),
                                 hint_index=RaftIndex(0),
                       hint_term=Term(0), is_blank=False)


def test_committed_entries_are_never_replaced() -> None:
    """T7: raft.G3; a leader that replaces one shows that a voter has lost entries."""
    raft = core(hard_state=HardState(Term(1)), entries=(entry(1, 1), entry(2, 1)))
    raft.step(NodeId(2), RaftHeartbeat(Term(1), RaftIndex(2), 1))
    with pytest.raises(SafetyLost, match="committed"):
        raft.log.truncate(2)


def test_entries_that_a_leader_has_not_checked_are_not_committed() -> None:
    """T7: raft.F1; later entries may be another leader's, whatever is committed."""
    raft = core(hard_state=HardState(Term(3)), entries=(entry(1, 1), entry(2, 1), entry(3, 1)))
    raft.step(NodeId(2), AppendEntries(Term(3), RaftIndex(1), Term(1), RaftIndex(3), RaftIndex(3),
                                       ()))
    assert raft.log.commit_index == 1


def test_voters_that_are_cut_from_the_log_never_were() -> None:
    """T7: raft.C1, raft.C3; it is in force while its entry is in the log, committed or not."""
    raft = core(hard_state=HardState(Term(1)))
    few = RaftEntry(RaftIndex(1), Term(1), CONFIGURATION, (Configuration.of([1, 2]).encode(),))
    raft.step(NodeId(2), AppendEntries(Term(1), RaftIndex(0), Term(0), RaftIndex(0), RaftIndex(1),
                                       (few,)))
    assert raft.configuration.voters == (1, 2)

    raft.step(NodeId(3), AppendEntries(Term(2), RaftIndex(0), Term(0), RaftIndex(0), RaftIndex(1),
                                (entry(1, 2),)))
    assert raft.configuration.voters == (1, 2, 3)


def test_two_leaders_in_one_term_are_noticed() -> None:
    raft = core(hard_state=HardState(Term(1)))
    raft.step(NodeId(2), RaftHeartbeat(Term(1), RaftIndex(0), 1))
    with pytest.raises(SafetyLost, match="both lead"):
        raft.step(NodeId(3), RaftHeartbeat(Term(1), RaftIndex(0), 1))


def test_an_old_leader_is_told_that_its_time_is_over() -> None:
    """T7: its message has no effect, and the response carries the new term."""
    raft = core(hard_state=HardState(Term(5)))
    raft.step(NodeId(2), AppendEntries(Term(4), RaftIndex(0), Term(0), RaftIndex(0), RaftIndex(1),
                                (entry(1, 4),)))
    ((to, reply),) = raft.ready().messages_when_durable
    assert (to, reply.term, raft.log.last_index) == (2, 5, 0)


def test_a_slow_disk_does_not_make_old_writes_count_for_new_ones() -> None:
    """T7: raft.G4; an entry that was replaced while it was being written is not durable."""
    raft = core(hard_state=HardState(Term(2)), entries=(entry(1, 1),))
    raft.step(NodeId(2), AppendEntries(Term(2), RaftIndex(1), Term(1), RaftIndex(0), RaftIndex(2),
                                (entry(2, 2),)))
    first = raft.ready()
    raft.step(NodeId(3), AppendEntries(Term(3), RaftIndex(1), Term(1), RaftIndex(0), RaftIndex(2),
                                (entry(2, 3),)))
    second = raft.ready()
    raft.persisted(first.number)
    assert raft.log.durable == 1

    raft.persisted(second.number)
    assert raft.log.durable == 2


def test_many_proposals_share_messages() -> None:
    """T6: entries travel by value, each of one type, many in one message."""
    world = World(1, 3, trouble=0.0)
    leader = elected(world, 1)
    for number in range(500):
        leader.raft.propose([b"%d" % number])
    world.settle(leader)
    appends = [message for _, _, message in world.wire if isinstance(message, AppendEntries)]

    assert len(appends) == 2
    assert [len(append.entries) for append in appends] == [500, 500]
    world.calm()
    assert all(len(member.state) == 500 for member in world.up())


def test_three_cores_decide_thousands_of_entries_in_a_second() -> None:
    """Speed: 30,000 for each second of an idle processor, bytes and all; here a bound far below."""
    world = World(1, 3, trouble=0.0)
    world.check = lambda member: None  # type: ignore[method-assign]  # what is measured is the core
    leader = elected(world, 1)
    count = 6000
    began = time.process_time()
    for number in range(count):
        leader.raft.propose([b"command %d" % number])
        if number % 100 == 99:
            world.settle(leader)
            world.calm()
    passed = time.process_time() - began

    assert all(len(member.state) == count for member in world.up())
    print(f"{count / passed:,.0f} entries/s")
    assert count / passed > 8000
