"""Whose messages are believed, and which numbers: nothing absurd is ever kept."""

import random

import pytest

from quipu.model.batch_types import CONTROLLER
from quipu.model.bounds import FIRST_TERM_MAX, INDEX_JUMP_MAX, TERM_JUMP_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.admission import NON_VOTER_PATIENCE, NoChecks
from quipu.raft.codec import NUMBER_MAX, decode, encode
from quipu.raft.core import Raft
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    AppendEntries,
    AppendEntriesResponse,
    HardState,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Observe,
    RaftEntry,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quipu.raft.ready import StoredState
from quipu.raft.settings import OBSERVER_PATIENCE
from quipu.raft.snapshot import join_items
from tests.raft.test_core import core, entry
from tests.raft.worlds import TIMING, Member, World, elected

TWO, NON_VOTER = NodeId(2), NodeId(66)
NONE = RaftIndex(0)


def a_voter(term: int = 5) -> Raft:
    """Node 1 of 1, 2 and 3, which has followed node 2 a moment ago."""
    raft = core(hard_state=HardState(Term(term)), entries=(entry(1, 1), entry(2, term)))
    raft.step(TWO, RaftHeartbeat(Term(term), NONE, 1))
    raft.ready()
    return raft


def of_every_kind(term: int) -> list[Message]:
    """Return messages of every kind, in `term`."""
    at, of = RaftIndex(2), Term(5)
    return [
        VoteRequest(Term(term), RaftIndex(9), Term(term), is_pre_vote=False, is_transfer=False),
        VoteRequest(Term(term), RaftIndex(9), Term(term), is_pre_vote=False, is_transfer=True),
        VoteRequest(Term(term), RaftIndex(9), Term(term), is_pre_vote=True, is_transfer=False),
        VoteResponse(Term(term), is_granted=False, is_pre_vote=False),
        AppendEntries(Term(term), at, of, at, at, ()),
        AppendEntriesResponse(Term(term), is_success=True, index=at, hint_index=NONE,
                              hint_term=Term(0),
                    is_blank=False),
        RaftHeartbeat(Term(term), NONE, 1),
        RaftHeartbeatResponse(Term(term), 1),
        InstallSnapshot(Term(term), RaftIndex(9), of, Configuration.of([66]), at, 0, 0, b""),
        InstallSnapshotResponse(Term(term), at, 0),
        TimeoutNow(Term(term)),
    ]


def state_of(raft: Raft) -> tuple[object, ...]:
    return raft.term, raft.vote, raft.leader, raft.log.last_index, raft.log.snapshot_index


def kinds(term: int) -> list[object]:
    return [pytest.param(message, id=f"{number} {type(message).__name__}")
            for number, message in enumerate(of_every_kind(term))]


@pytest.mark.parametrize("message", kinds(5 + TERM_JUMP_MAX + 1))
@pytest.mark.parametrize("sender", [TWO, NON_VOTER])
def test_an_implausible_term_changes_nothing(sender: NodeId, message: Message) -> None:
    """K8, V15: raft.M1; also from a voter; nothing is written."""
    raft = a_voter()
    before = state_of(raft)
    why = raft.step(sender, message)
    assert why is not None
    assert "cannot be" in why
    assert state_of(raft) == before
    ready = raft.ready()
    assert not ready.is_to_be_written


@pytest.mark.parametrize("message", kinds(6))
def test_a_stranger_is_not_believed_while_somebody_leads(message: Message) -> None:
    """K8, V15: raft.M2; a follower rejects its messages of every kind."""
    raft = a_voter()
    before = state_of(raft)
    why = raft.step(NON_VOTER, message)
    assert why is not None
    assert "which does not vote; voters are 1, 2, 3" in why
    assert state_of(raft) == before
    assert not raft.ready().is_to_be_written


@pytest.mark.parametrize("message", kinds(2))
def test_a_stranger_does_not_end_a_reign(message: Message) -> None:
    """K8, V15: the leader does not step down either."""
    world = World(1, 3, trouble=0)
    leader = elected(world)
    term = leader.raft.term
    moved = message._replace(term=Term(term + 1))
    assert leader.raft.step(NON_VOTER, moved) is not None
    assert leader.raft.is_leader
    assert leader.raft.term == term
    world.run(50)
    assert world.leader() is leader


def test_what_a_voter_says_is_believed() -> None:
    """T7: the same messages of a voter have their effect: the checks see the sender."""
    raft = a_voter()
    assert raft.step(NodeId(3), RaftHeartbeat(Term(6), NONE, 1)) is None
    assert (raft.term, raft.leader) == (6, 3)


def test_a_node_whose_voters_are_gone_listens_to_others_in_the_end() -> None:
    """T7: raft.M2; the voters may have changed while it was away; it has had no leader since."""
    raft = a_voter()
    patience_ms = NON_VOTER_PATIENCE * TIMING.election_timeout_ms
    raft.tick(patience_ms - 1)
    assert raft.step(NON_VOTER, RaftHeartbeat(Term(7), NONE, 1)) is not None
    raft.tick(patience_ms)
    assert raft.step(NON_VOTER, RaftHeartbeat(Term(7), NONE, 1)) is None
    assert raft.leader == NON_VOTER
    raft.tick(patience_ms + 1)
    assert raft.step(NON_VOTER, RaftHeartbeat(Term(7), NONE, 2)) is None  # and goes on to


def test_an_empty_node_takes_whatever_leads() -> None:
    """T7: its log is empty, and its list of voters may be old; but terms stay bounded."""
    for term, expected in ((FIRST_TERM_MAX, True), (FIRST_TERM_MAX + 1, False)):
        raft = Raft(NodeId(1), [NodeId(1), TWO], StoredState(), timing=TIMING, chance=lambda: 0.5)
        why = raft.step(NON_VOTER, RaftHeartbeat(Term(term), NONE, 1))
        assert (why is None) is expected
        assert (raft.term == term) is expected


def test_a_snapshot_too_far_ahead_is_refused() -> None:
    """K8: raft.M1; also of a leader."""
    raft = a_voter()
    far = InstallSnapshot(Term(5), RaftIndex(3 + INDEX_JUMP_MAX), Term(5), Configuration.of([1, 2,
                                                                                             3]),
                  RaftIndex(2), 0, 0, b"")
    assert "cannot be" in (raft.step(TWO, far) or "")
    assert raft.log.snapshot_index == 0


def test_an_observer_of_a_later_term_gets_the_log_in_the_end() -> None:
    """T7, V15: raft.M3; one that was a voter may be ahead in terms; it deposes a leader once."""
    world = World(1, 3, trouble=0)
    leader = elected(world)
    term = leader.raft.term
    leader.raft.step(NON_VOTER, Observe(Term(term + 3)))
    later = AppendEntriesResponse(Term(term + 3), is_success=False, index=NONE, hint_index=NONE,
                                  hint_term=Term(0),
                        is_blank=False)
    assert leader.raft.step(NON_VOTER, later) is not None
    for _ in range(OBSERVER_PATIENCE * 6):
        world.run(20)
    assert world.leader() is leader
    leader.raft.step(NON_VOTER, Observe(Term(term + 3)))
    assert leader.raft.step(NON_VOTER, later) is None
    assert not leader.raft.is_leader
    assert leader.raft.term == term + 3


def test_a_round_that_was_not_asked_for_confirms_no_read() -> None:
    """K8, V15: raft.D1; a response to a round of the future would confirm a deposed leader."""
    world = World(1, 3, trouble=0)
    leader = elected(world)
    number = leader.raft.read_index()
    assert number is not None
    world.wire.clear()
    for voter in (1, 2, 3):
        leader.raft.step(NodeId(voter), RaftHeartbeatResponse(leader.raft.term, NUMBER_MAX))
    assert leader.raft.ready().read_states == []


class Picky(NoChecks):
    """Rejects commands that are marked as bad."""

    def check_commands(self, commands: object) -> None:
        if b"bad" in commands:  # type: ignore[operator]  # a sequence
            raise MalformedBytes("a bad command")

    def check_snapshot(self, items: object) -> None:
        self.check_commands(items)


def test_commands_that_cannot_be_applied_are_not_kept() -> None:
    """K8: raft.R6; neither as entries nor in a snapshot; good ones that come later are."""
    raft = Raft(NodeId(1), [NodeId(1), TWO, NodeId(3)], StoredState(), timing=TIMING,
                chance=lambda: 0.5, checks=Picky())

    def append(command: bytes) -> AppendEntries:
        new = RaftEntry(RaftIndex(1), Term(1), CONTROLLER, (command,))
        return AppendEntries(Term(1), NONE, Term(0), NONE, RaftIndex(1), (new,))

    def install(command: bytes) -> InstallSnapshot:
        data = join_items([command])
        return InstallSnapshot(Term(1), RaftIndex(7), Term(1), Configuration.of([1, 2, 3]),
                               RaftIndex(7), len(data), 0, data)

    for bad in (append(b"bad"), install(b"bad")):
        with pytest.raises(MalformedBytes, match="a bad command"):
            raft.step(TWO, bad)
        assert raft.log.is_empty
        assert raft.ready().entries == []
    raft.step(TWO, append(b"good"))
    assert raft.log.last_index == 1
    raft.step(TWO, install(b"good"))
    assert raft.log.snapshot_index == 7


@pytest.mark.parametrize("message", kinds(1))
def test_numbers_that_cannot_be_are_not_decoded(message: Message) -> None:
    """K8: above what leaves room for one more, and below nothing."""
    for number in (NUMBER_MAX + 1, (1 << 63) - 1, -1):
        data = encode(message._replace(term=Term(number)))
        with pytest.raises(MalformedBytes):
            decode(memoryview(data))
    assert decode(memoryview(encode(message._replace(term=Term(NUMBER_MAX))))).term == NUMBER_MAX


def absurd(rng: random.Random, member: Member) -> Message:
    """Return a message that no healthy node sends to `member`."""
    raft = member.raft
    term = rng.choice([raft.term + TERM_JUMP_MAX + 1, FIRST_TERM_MAX * 4, NUMBER_MAX])
    message = rng.choice([
        *of_every_kind(term), RaftHeartbeatResponse(raft.term, NUMBER_MAX),
        AppendEntriesResponse(raft.term, is_success=True, index=RaftIndex(NUMBER_MAX),
                              hint_index=NONE,
                    hint_term=Term(0), is_blank=False),
        InstallSnapshotResponse(raft.term, RaftIndex(NUMBER_MAX), NUMBER_MAX)])
    if message.term == term and raft.log.is_empty:
        return message._replace(term=Term(max(term, FIRST_TERM_MAX + 1)))
    return message


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_speak_nonsense_harm_nobody(seed: int) -> None:
    """K8, V15, T7: under faults too, what Raft promises holds, and terms stay small."""
    rng = random.Random(seed)
    world = World(7000 + seed, 3, observers=1)
    for _ in range(60):
        world.chaos(15)
        for member in world.up():
            sender = rng.choice([NON_VOTER, NodeId(1), TWO, NodeId(3)])
            member.raft.step(sender, absurd(rng, member))
            world.settle(member)
    world.heal()
    for _ in range(30):
        world.run(200)
        if world.is_agreed():
            break
    assert world.is_agreed()
    assert all(member.raft.term < TERM_JUMP_MAX for member in world.members.values())
