"""Claims of a newer epoch: which ones count, and how a replica continues after a wrong one."""

import pytest

from quipu.chain.effects import ConfirmEpoch, SetServing, WarnEpochIgnored
from quipu.chain.events import EpochConfirmed, Received
from quipu.chain.messages import (
    BEGIN,
    Ack,
    DescribeLog,
    DescribeReason,
    Fenced,
    LogDescription,
    Message,
    Replicate,
)
from quipu.chain.roles import Role
from quipu.model.bounds import EPOCH_AHEAD_MAX, EPOCH_MAX, OFFSET_JUMP_MAX
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId
from tests.chain.stage import Stage, members

ONE, TWO, NON_MEMBER = NodeId(1), NodeId(2), NodeId(9)
ZERO = LogOffset(0)


def of_every_kind(epoch: int) -> list[Message]:
    at = Epoch(epoch)
    return [
        DescribeLog(at), Fenced(at), LogDescription(at, DescribeReason.ANNOUNCEMENT, 0, ZERO, ZERO,
                                                    ZERO, ()),
        Replicate(at, 1, 1, 1 << 40, ZERO, NO_EPOCH, BEGIN, BEGIN, ZERO, ZERO, ()),
        Ack(at, 1 << 40, BEGIN, ZERO, ZERO)]


@pytest.mark.parametrize("sender", [NON_MEMBER, ONE, TWO])
@pytest.mark.parametrize("epoch", [EPOCH_MAX, (1 << 31) - 1, 2 + EPOCH_AHEAD_MAX + 1])
@pytest.mark.parametrize("name", [1, 2])
def test_a_claim_of_an_implausible_epoch_is_ignored(name: int, epoch: int, sender: NodeId) -> None:
    """K8, V15: chain.F1; also if a member claims it, at the head and at any other member."""
    stage = Stage(2).play()
    replica = stage[name].replica
    role = replica.role
    for message in of_every_kind(epoch):
        assert replica.handle(Received(sender, message)) == [WarnEpochIgnored(sender, epoch)]
    assert replica.role is role
    stage.produce(1)
    stage.run()
    assert stage[2].replica.committed == stage[1].replica.committed == stage[1].log.end


@pytest.mark.parametrize("epoch", [3, 1 << 20])
def test_a_claim_of_a_node_that_is_no_member_is_ignored(epoch: int) -> None:
    """K8, V15: chain.F1; for any epoch; the controller configures the true ones."""
    stage = Stage(2).play()
    for message in of_every_kind(epoch):
        assert stage[1].replica.handle(Received(NON_MEMBER, message)) == [
            WarnEpochIgnored(NON_MEMBER, epoch)]
    assert stage[1].replica.is_leader


def test_claims_are_ignored_before_the_members_are_known() -> None:
    """K8, V15: else a message that comes before the first configuration would outlast it."""
    stage = Stage(2)
    for message in of_every_kind(7):
        stage[2].happens(Received(ONE, message))
    stage.play()
    assert stage[2].replica.role is Role.FOLLOWING


@pytest.mark.parametrize("name", [1, 2, 3])
def test_a_replica_goes_on_when_the_metadata_knows_of_no_newer_epoch(name: int) -> None:
    """K8, V15: a member's wrong claim only pauses a replica, at any position in the chain."""
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
    assert stage[1].replica.is_leader
    stage.produce(1)
    stage.run()
    for actor in stage.actors.values():
        assert actor.replica.committed == stage[1].log.end
        assert actor.replica.is_serving


def test_metadata_read_before_the_last_claim_does_not_lift_the_fence() -> None:
    """V15: chain.F2; a claim that came after the metadata was read may be true."""
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


def test_an_epoch_configured_under_a_wrong_claim_begins_when_the_fence_is_lifted() -> None:
    """V15, V21: the head asks the others, as without the claim."""
    stage = Stage(2).play()
    stage[1].happens(Received(TWO, Fenced(Epoch(9))))
    stage.configure(members("12", epoch=3))
    stage.run()
    assert stage[1].replica.role is Role.FENCED

    stage[1].happens(EpochConfirmed(Epoch(3), stage[1].replica.fence.claim_count))
    stage.run()

    assert stage[1].replica.is_leader
    assert stage[2].replica.is_serving
    assert stage[1].replica.epoch == stage[2].replica.epoch == 3


def test_an_epoch_is_confirmed_without_effect_if_no_newer_one_was_claimed() -> None:
    stage = Stage(2).play()
    assert stage[1].replica.handle(EpochConfirmed(Epoch(2), 0)) == []
    effects = stage[1].replica.handle(Received(TWO, DescribeLog(Epoch(3))))
    assert effects == [SetServing(is_serving=False, is_leader=False), ConfirmEpoch()]


def test_a_log_is_not_restarted_at_an_absurd_offset() -> None:
    """K8: not by the predecessor either."""
    stage = Stage(2).play()
    log = stage[2].log
    far = LogOffset(log.log_end + OFFSET_JUMP_MAX + 1)
    stage[2].happens(Received(ONE, Replicate(
        Epoch(2), 2, 5, 1 << 41, far, NO_EPOCH, BEGIN, BEGIN, far, log.log_end, (b"entry",))))
    assert "restarts" not in stage.script()
    assert stage[2].replica.is_serving


def test_a_late_announcement_does_not_truncate_what_was_committed_since() -> None:
    """V14: the log that it describes was truncated since, and has grown to the same end again."""
    stage = Stage(2).play()
    greeting = stage[2].replica._state.describe(DescribeReason.ANNOUNCEMENT)
    stale = greeting._replace(committed_log=ZERO, epochs=((Epoch(1), ZERO),))
    stage.produce(1, 2)
    stage.run()
    stage.script()

    stage[1].happens(Received(TWO, stale._replace(log_end=stage[2].log.log_end)))
    stage.run()

    assert "restart" not in stage.script()
    assert stage[2].replica.is_serving
    assert stage[2].replica.committed == stage[1].log.end


def test_a_reported_member_stays_required_when_the_fence_is_lifted() -> None:
    """V7, V15: the report may still arrive; who serves then has every committed batch."""
    stage = Stage(2)
    stage[1].fill(1, 1, 1)
    stage.configure(members("1", "2", epoch=2))
    stage.run()
    assert "1 reports 2 in version 2" in stage.script()
    committed = stage[1].replica.committed
    stage[1].happens(Received(TWO, Fenced(Epoch(3))))
    stage[1].happens(EpochConfirmed(Epoch(2), stage[1].replica.fence.claim_count))

    stage.produce(1)

    assert stage[1].replica.is_leader
    assert stage[1].replica.committed == committed  # 2 does not have it
    stage.run()
    stage.tick()
    stage.run()
    assert stage[1].replica.committed == stage[1].log.end == stage[2].log.end
