"""Signs of a newer epoch: who is believed, and how a replica goes on after a wrong one."""

import pytest

from quipu.chain.effects import AskEpoch, Disbelieve, Serve
from quipu.chain.events import EpochConfirmed, Received
from quipu.chain.messages import BEGIN, Ack, Describe, Described, Fenced, Message, Replicate, Why
from quipu.chain.role import Role
from quipu.model.bounds import EPOCH_AHEAD_MAX, EPOCH_MAX, OFFSET_JUMP_MAX
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId
from tests.chain.stage import Stage, members

ONE, TWO, STRANGER = NodeId(1), NodeId(2), NodeId(9)
ZERO = LogOffset(0)


def of_every_kind(epoch: int) -> list[Message]:
    at = Epoch(epoch)
    return [
        Describe(at), Fenced(at), Described(at, Why.GREETING, 0, ZERO, ZERO, ZERO, ()),
        Replicate(at, 1, 1, 1 << 40, ZERO, NO_EPOCH, BEGIN, BEGIN, ZERO, ZERO, ()),
        Ack(at, 1 << 40, BEGIN, ZERO, ZERO)]


@pytest.mark.parametrize("sender", [STRANGER, ONE, TWO])
@pytest.mark.parametrize("epoch", [EPOCH_MAX, (1 << 31) - 1, 2 + EPOCH_AHEAD_MAX + 1])
@pytest.mark.parametrize("name", [1, 2])
def test_an_implausible_epoch_stops_nobody(name: int, epoch: int, sender: NodeId) -> None:
    """K8, V15: be it said by a member, to the head or to another."""
    stage = Stage(2).play()
    replica = stage[name].replica
    role = replica.role
    for message in of_every_kind(epoch):
        assert replica.handle(Received(sender, message)) == [Disbelieve(sender, epoch)]
    assert replica.role is role
    stage.produce(1)
    stage.run()
    assert stage[2].replica.committed == stage[1].replica.committed == stage[1].log.end


@pytest.mark.parametrize("epoch", [3, 1 << 20])
def test_a_node_without_a_part_stops_nobody(epoch: int) -> None:
    """K8, V15: whatever epoch it speaks of; the controller will tell if there is one."""
    stage = Stage(2).play()
    for message in of_every_kind(epoch):
        assert stage[1].replica.handle(Received(STRANGER, message)) == [
            Disbelieve(STRANGER, epoch)]
    assert stage[1].replica.is_leading


def test_nobody_is_believed_before_the_members_are_known() -> None:
    """K8, V15: else a message that comes before the first configuration would outlast it."""
    stage = Stage(2)
    for message in of_every_kind(7):
        stage[2].happens(Received(ONE, message))
    stage.play()
    assert stage[2].replica.role is Role.FOLLOWING


@pytest.mark.parametrize("name", [1, 2, 3])
def test_a_replica_goes_on_when_the_metadata_knows_of_no_newer_epoch(name: int) -> None:
    """K8, V15: a member's wrong word is a pause, wherever in the chain it is heard."""
    stage = Stage(3).play()
    stage.produce(1)
    stage.run()
    replica = stage[name].replica
    liar = NodeId(name % 3 + 1)
    stage[name].happens(Received(liar, Fenced(Epoch(5))))
    assert (replica.role, replica.is_serving) == (Role.FENCED, False)
    if name != 1:
        stage.produce(1)
        stage.run()
        assert stage[1].replica.committed != stage[1].log.end

    stage[name].happens(EpochConfirmed(Epoch(2), replica.fence.claim_count))

    stage.run()
    stage.tick()
    stage.run()
    assert stage[1].replica.is_leading
    stage.produce(1)
    stage.run()
    for actor in stage.actors.values():
        assert actor.replica.committed == stage[1].log.end
        assert actor.replica.is_serving


def test_an_answer_that_is_older_than_the_last_claim_takes_nothing_back() -> None:
    """V15: what came after the metadata was read may be true."""
    stage = Stage(2).play()
    replica = stage[2].replica
    stage[2].happens(Received(ONE, Fenced(Epoch(3))))
    before = replica.fence.claim_count
    stage[2].happens(Received(ONE, Fenced(Epoch(3))))

    stage[2].happens(EpochConfirmed(Epoch(2), before))
    assert replica.role is Role.FENCED
    stage[2].happens(EpochConfirmed(Epoch(1), replica.fence.claim_count))
    assert replica.role is Role.FENCED
    stage[2].happens(EpochConfirmed(Epoch(2), replica.fence.claim_count))
    assert replica.role is Role.FOLLOWING


def test_an_epoch_that_begins_under_a_wrong_claim_begins_when_it_is_taken_back() -> None:
    """V15, V21: the head asks the others, as if nobody had lied."""
    stage = Stage(2).play()
    stage[1].happens(Received(TWO, Fenced(Epoch(9))))
    stage.configure(members("12", epoch=3))
    stage.run()
    assert stage[1].replica.role is Role.FENCED

    stage[1].happens(EpochConfirmed(Epoch(3), stage[1].replica.fence.claim_count))
    stage.run()

    assert stage[1].replica.is_leading
    assert stage[2].replica.is_serving
    assert stage[1].replica.epoch == stage[2].replica.epoch == 3


def test_nothing_is_taken_back_where_nothing_was_claimed() -> None:
    stage = Stage(2).play()
    assert stage[1].replica.handle(EpochConfirmed(Epoch(2), 0)) == []
    effects = stage[1].replica.handle(Received(TWO, Describe(Epoch(3))))
    assert effects == [Serve(is_serving=False, is_leading=False), AskEpoch()]


def test_a_log_is_not_restarted_at_an_absurd_offset() -> None:
    """K8: not by the node before either."""
    stage = Stage(2).play()
    log = stage[2].log
    far = LogOffset(log.log_end + OFFSET_JUMP_MAX + 1)
    stage[2].happens(Received(ONE, Replicate(
        Epoch(2), 2, 5, 1 << 41, far, NO_EPOCH, BEGIN, BEGIN, far, log.log_end, (b"entry",))))
    assert "restarts" not in stage.script()
    assert stage[2].replica.is_serving


def test_a_greeting_that_comes_late_does_not_cut_what_was_committed_since() -> None:
    """V14: it says where a log ended that has been cut and has grown since, to the same end."""
    stage = Stage(2).play()
    greeting = stage[2].replica._standing.describe(Why.GREETING)
    stale = greeting._replace(committed_log=ZERO, epochs=((Epoch(1), ZERO),))
    stage.produce(1, 2)
    stage.run()
    stage.script()

    stage[1].happens(Received(TWO, stale._replace(log_end=stage[2].log.log_end)))
    stage.run()

    assert "restart" not in stage.script()
    assert stage[2].replica.is_serving
    assert stage[2].replica.committed == stage[1].log.end


def test_who_was_reported_counts_on_when_a_wrong_claim_is_taken_back() -> None:
    """V7, V15: the report may still be on its way; who serves then has all that is committed."""
    stage = Stage(2)
    stage[1].fill(1, 1, 1)
    stage.configure(members("1", "2", epoch=2))
    stage.run()
    assert "1 reports 2 in version 2" in stage.script()
    committed = stage[1].replica.committed
    stage[1].happens(Received(TWO, Fenced(Epoch(3))))
    stage[1].happens(EpochConfirmed(Epoch(2), stage[1].replica.fence.claim_count))

    stage.produce(1)

    assert stage[1].replica.is_leading
    assert stage[1].replica.committed == committed  # 2 does not have it
    stage.run()
    stage.tick()
    stage.run()
    assert stage[1].replica.committed == stage[1].log.end == stage[2].log.end
