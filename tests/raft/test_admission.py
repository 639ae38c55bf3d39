"""Whose messages are believed, and which numbers: nothing absurd is ever kept."""

import random

import pytest

from quipu.model.batch_types import CONTROLLER
from quipu.model.bounds import FIRST_TERM_MAX, INDEX_JUMP_MAX, TERM_JUMP_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.admission import STRANGER_PATIENCE, NoChecks
from quipu.raft.codec import NUMBER_MAX, decode, encode
from quipu.raft.core import Raft, Stored
from quipu.raft.image import join_items
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    Append,
    AppendReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Install,
    InstallReply,
    Message,
    Observe,
    TimeoutNow,
    Vote,
    VoteReply,
)
from quipu.raft.settings import OBSERVER_PATIENCE
from tests.raft.test_core import core, entry
from tests.raft.worlds import TIMING, Member, World, elected

TWO, STRANGER = NodeId(2), NodeId(66)
NONE = RaftIndex(0)


def a_voter(term: int = 5) -> Raft:
    """Node 1 of 1, 2 and 3, which has followed node 2 a moment ago."""
    raft = core(hard_state=HardState(Term(term)), entries=(entry(1, 1), entry(2, term)))
    raft.step(TWO, Heartbeat(Term(term), NONE, 1))
    raft.ready()
    return raft


def of_every_kind(term: int) -> list[Message]:
    """What a node might say in `term`."""
    at, of = RaftIndex(2), Term(5)
    return [
        Vote(Term(term), RaftIndex(9), Term(term), is_pre_vote=False, is_transfer=False),
        Vote(Term(term), RaftIndex(9), Term(term), is_pre_vote=False, is_transfer=True),
        Vote(Term(term), RaftIndex(9), Term(term), is_pre_vote=True, is_transfer=False),
        VoteReply(Term(term), is_granted=False, is_pre_vote=False),
        Append(Term(term), at, of, at, at, ()),
        AppendReply(Term(term), is_ok=True, index=at, hint=NONE, hint_term=Term(0),
                    is_blank=False),
        Heartbeat(Term(term), NONE, 1),
        HeartbeatReply(Term(term), 1),
        Install(Term(term), RaftIndex(9), of, Configuration.of([66]), at, 0, 0, b""),
        InstallReply(Term(term), at, 0),
        TimeoutNow(Term(term)),
    ]


def state_of(raft: Raft) -> tuple[object, ...]:
    return raft.term, raft.vote, raft.leader, raft.log.last_index, raft.log.image_index


def kinds(term: int) -> list[object]:
    return [pytest.param(message, id=f"{number} {type(message).__name__}")
            for number, message in enumerate(of_every_kind(term))]


@pytest.mark.parametrize("message", kinds(5 + TERM_JUMP_MAX + 1))
@pytest.mark.parametrize("sender", [TWO, STRANGER])
def test_an_implausible_term_changes_nothing(sender: NodeId, message: Message) -> None:
    """K8, V15: be it a voter's; nothing of it is to be written."""
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
    """K8, V15: not by a follower, whatever it says."""
    raft = a_voter()
    before = state_of(raft)
    why = raft.step(STRANGER, message)
    assert why is not None
    assert "which is no voter; voters are 1, 2, 3" in why
    assert state_of(raft) == before
    assert not raft.ready().is_to_be_written


@pytest.mark.parametrize("message", kinds(2))
def test_a_stranger_does_not_end_a_reign(message: Message) -> None:
    """K8, V15: nor does the leader step down for it."""
    world = World(1, 3, trouble=0)
    leader = elected(world)
    term = leader.raft.term
    moved = message._replace(term=Term(term + 1))
    assert leader.raft.step(STRANGER, moved) is not None
    assert leader.raft.is_leader
    assert leader.raft.term == term
    world.run(50)
    assert world.leader() is leader


def test_what_a_voter_says_is_believed() -> None:
    """T7: the same messages of a voter have their effect: the checks see the sender."""
    raft = a_voter()
    assert raft.step(NodeId(3), Heartbeat(Term(6), NONE, 1)) is None
    assert (raft.term, raft.leader) == (6, 3)


def test_a_node_whose_voters_are_gone_listens_to_others_in_the_end() -> None:
    """T7: while it was away the voters may have become others; silence says so."""
    raft = a_voter()
    patience_ms = STRANGER_PATIENCE * TIMING.election_timeout_ms
    raft.tick(patience_ms - 1)
    assert raft.step(STRANGER, Heartbeat(Term(7), NONE, 1)) is not None
    raft.tick(patience_ms)
    assert raft.step(STRANGER, Heartbeat(Term(7), NONE, 1)) is None
    assert raft.leader == STRANGER
    raft.tick(patience_ms + 1)
    assert raft.step(STRANGER, Heartbeat(Term(7), NONE, 2)) is None  # and goes on to


def test_an_empty_node_takes_whatever_leads() -> None:
    """T7: it has nothing to lose, and its list of voters may be old; but no term without end."""
    for term, expected in ((FIRST_TERM_MAX, True), (FIRST_TERM_MAX + 1, False)):
        raft = Raft(NodeId(1), [NodeId(1), TWO], Stored(), timing=TIMING, chance=lambda: 0.5)
        why = raft.step(STRANGER, Heartbeat(Term(term), NONE, 1))
        assert (why is None) is expected
        assert (raft.term == term) is expected


def test_an_image_too_far_ahead_is_refused() -> None:
    """K8: also of a leader."""
    raft = a_voter()
    far = Install(Term(5), RaftIndex(3 + INDEX_JUMP_MAX), Term(5), Configuration.of([1, 2, 3]),
                  RaftIndex(2), 0, 0, b"")
    assert "cannot be" in (raft.step(TWO, far) or "")
    assert raft.log.image_index == 0


def test_an_observer_of_a_later_term_gets_the_log_in_the_end() -> None:
    """T7, V15: one that was a voter may be ahead in terms; it ends a reign, but not every reign."""
    world = World(1, 3, trouble=0)
    leader = elected(world)
    term = leader.raft.term
    leader.raft.step(STRANGER, Observe(Term(term + 3)))
    later = AppendReply(Term(term + 3), is_ok=False, index=NONE, hint=NONE, hint_term=Term(0),
                        is_blank=False)
    assert leader.raft.step(STRANGER, later) is not None
    for _ in range(OBSERVER_PATIENCE * 6):
        world.run(20)
    assert world.leader() is leader
    leader.raft.step(STRANGER, Observe(Term(term + 3)))
    assert leader.raft.step(STRANGER, later) is None
    assert not leader.raft.is_leader
    assert leader.raft.term == term + 3


def test_a_round_that_was_not_asked_for_confirms_no_read() -> None:
    """K8, V15: a follower that answers rounds of the future would make a deposed leader sure."""
    world = World(1, 3, trouble=0)
    leader = elected(world)
    number = leader.raft.read()
    assert number is not None
    world.wire.clear()
    for voter in (1, 2, 3):
        leader.raft.step(NodeId(voter), HeartbeatReply(leader.raft.term, NUMBER_MAX))
    assert leader.raft.ready().reads == []


class Picky(NoChecks):
    """Knows good commands from bad ones."""

    def check_commands(self, commands: object) -> None:
        if b"bad" in commands:  # type: ignore[operator]  # a sequence
            raise MalformedBytes("a bad command")

    def check_image(self, items: object) -> None:
        self.check_commands(items)


def test_commands_that_cannot_be_applied_are_not_kept() -> None:
    """K8: neither as entries nor in an image; good ones that come later are."""
    raft = Raft(NodeId(1), [NodeId(1), TWO, NodeId(3)], Stored(), timing=TIMING,
                chance=lambda: 0.5, checks=Picky())

    def append(command: bytes) -> Append:
        new = Entry(RaftIndex(1), Term(1), CONTROLLER, (command,))
        return Append(Term(1), NONE, Term(0), NONE, RaftIndex(1), (new,))

    def install(command: bytes) -> Install:
        data = join_items([command])
        return Install(Term(1), RaftIndex(7), Term(1), Configuration.of([1, 2, 3]), RaftIndex(7),
                       len(data), 0, data)

    for bad in (append(b"bad"), install(b"bad")):
        with pytest.raises(MalformedBytes, match="a bad command"):
            raft.step(TWO, bad)
        assert raft.log.is_empty
        assert raft.ready().entries == []
    raft.step(TWO, append(b"good"))
    assert raft.log.last_index == 1
    raft.step(TWO, install(b"good"))
    assert raft.log.image_index == 7


@pytest.mark.parametrize("message", kinds(1))
def test_numbers_that_cannot_be_are_not_decoded(message: Message) -> None:
    """K8: above what leaves room for one more, and below nothing."""
    for number in (NUMBER_MAX + 1, (1 << 63) - 1, -1):
        data = encode(message._replace(term=Term(number)))
        with pytest.raises(MalformedBytes):
            decode(memoryview(data))
    assert decode(memoryview(encode(message._replace(term=Term(NUMBER_MAX))))).term == NUMBER_MAX


def absurd(rng: random.Random, member: Member) -> Message:
    """Something that no healthy node says to `member`."""
    raft = member.raft
    term = rng.choice([raft.term + TERM_JUMP_MAX + 1, FIRST_TERM_MAX * 4, NUMBER_MAX])
    message = rng.choice([
        *of_every_kind(term), HeartbeatReply(raft.term, NUMBER_MAX),
        AppendReply(raft.term, is_ok=True, index=RaftIndex(NUMBER_MAX), hint=NONE,
                    hint_term=Term(0), is_blank=False),
        InstallReply(raft.term, RaftIndex(NUMBER_MAX), NUMBER_MAX)])
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
            member.raft.step(rng.choice([STRANGER, NodeId(1), TWO, NodeId(3)]), absurd(rng, member))
            world.settle(member)
    world.heal()
    for _ in range(30):
        world.run(200)
        if world.is_agreed():
            break
    assert world.is_agreed()
    assert all(member.raft.term < TERM_JUMP_MAX for member in world.members.values())
