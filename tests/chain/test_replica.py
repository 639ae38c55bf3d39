"""Epochs, roles, fencing, and chains of one node."""

from quipu.chain.effects import ConfirmEpoch, SetServing
from quipu.chain.events import LOG_CHANGED, Configured, Received
from quipu.chain.messages import (
    BEGIN,
    DescribeLog,
    DescribeReason,
    Fenced,
    LogDescription,
    Mark,
)
from quipu.chain.replica import Replica
from quipu.chain.roles import Role
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset
from quipu.sim.worlds.chain_log import ModelLog
from tests.chain.stage import Stage, members, scene

ONE = NodeId(1)


def test_an_epoch_begins_with_its_configuration() -> None:
    """V2, T4: each member serves once the head's configuration batch is in its log."""
    stage = Stage(3)
    stage.configure(members("123", epoch=2))
    stage.run()

    assert stage.script() == scene("""
        1 -> 2 describe 2
        1 -> 3 describe 2
        2 -> 1 announcement: ends at 0, epochs
        3 -> 2 announcement: ends at 0, epochs
        3 -> 1 announcement: ends at 0, epochs
        2 -> 1 response: ends at 0, epochs
        3 -> 1 response: ends at 0, epochs
        1 begins epoch 2
        1 leads
        1 -> 2 open replicate after 0/-1 [1]
        2 append 1
        2 serves
        2 -> 3 open replicate after 0/-1 [1]
        3 append 1
        3 serves
        3 commits 1
        3 -> 2 ack 1 of 1
        2 commits 1
        2 -> 1 ack 1 of 1
        1 commits 1
        """)


def test_a_chain_of_one_sends_nothing() -> None:
    """V2: no replication, no messages, not even at a tick."""
    stage = Stage(1)
    stage.configure(members("1", epoch=2))
    stage.produce(1, 2)
    stage.tick()

    assert stage.script() == scene("""
        1 begins epoch 2
        1 leads
        1 commits 1
        1 append 2
        1 commits 3
        """)
    assert stage[1].replica.is_quiet


def test_a_chain_of_one_waits_for_its_disk_if_it_must() -> None:
    """V17: with flush.messages=1 even the only node commits what it has flushed."""
    stage = Stage(1, is_durable=True)
    stage.configure(members("1", epoch=2))
    stage.produce(1)
    assert stage[1].replica.committed == BEGIN

    stage.flush(1)

    assert stage[1].replica.committed.log == 2


def test_a_configuration_batch_that_could_not_be_written_is_tried_again() -> None:
    stage = Stage(1)
    stage[1].disk_is_full = True
    stage.configure(members("1", epoch=2))
    assert stage[1].replica.role is Role.RECOVERING

    stage[1].disk_is_full = False
    stage.tick()

    assert stage[1].replica.is_leader


def test_the_chain_is_shortened_when_its_head_dies() -> None:
    """V21: node 2 becomes head; batches that only it had become committed."""
    stage = Stage(3).play()
    stage.produce(1, 2)
    stage.deliver()
    stage.waiting.clear()
    stage.script()

    stage.configure(members("23", offline="1", epoch=3), 2, 3)
    stage.run(1)

    assert stage.script() == scene("""
        2 rests
        2 -> 3 describe 3
        3 rests
        3 -> 2 announcement: ends at 1, epochs 2@0
        3 -> 2 response: ends at 1, epochs 2@0
        2 begins epoch 3
        2 leads
        2 -> 3 open replicate after 1/2 [3]
        3 append 3
        3 serves
        3 commits 4
        3 -> 2 ack 4 of 4
        2 commits 4
        """)


def test_an_older_replica_set_is_ignored() -> None:
    """V15: replica sets may come late; neither epochs nor versions go back."""
    stage = Stage(3)
    stage.configure(members("12", "3", epoch=2, version=2))
    stage.run()
    stage.configure(members("12", offline="3", epoch=2, version=5))
    stage.run()
    stage.script()

    stage.configure(members("12", "3", epoch=2, version=4))
    stage.configure(members("321", epoch=1, version=9))

    assert stage.script() == ""
    for name in (1, 2, 3):
        replica_set = stage[name].replica.replica_set
        assert replica_set is not None
        assert (replica_set.epoch, replica_set.version) == (2, 5)


def test_a_deposed_head_is_fenced_and_stops() -> None:
    """V15: its write is in no other log."""
    stage = Stage(3).play()
    stage.configure(members("23", offline="1", epoch=3), 2, 3)
    stage.run(1)
    stage.script()

    stage.produce(1)
    stage.run()

    assert stage.script() == scene("""
        1 append 1
        1 -> 2 replicate after 1/2 [1]
        2 -> 1 fenced 3
        1 rests
        """)
    assert stage[1].replica.role is Role.FENCED
    assert stage[1].replica.committed.log == 1
    assert stage[1].replica.handle(LOG_CHANGED) == []


def test_an_old_acknowledgement_is_ignored() -> None:
    """V15: node 3 was cut off in an older epoch; its acknowledgements there do not count."""
    stage = Stage(2).play()
    stage.produce(1)
    stage.deliver()
    stage.configure(members("12", epoch=3), 1)
    stage.waiting = stage.waiting[:1]
    stage.script()

    stage.run()

    assert stage.script() == ""
    assert stage[1].replica.committed.log == 1


def test_a_claim_of_a_newer_epoch_ends_service_until_it_is_configured() -> None:
    """V15: a member's describe of epoch 4 shows that epoch 2 is over."""
    stage = Stage(2).play()

    effects = stage[2].replica.handle(Received(ONE, DescribeLog(Epoch(4))))

    assert effects == [SetServing(is_serving=False, is_leader=False), ConfirmEpoch()]
    stage.configure(members("12", epoch=3), 2)
    assert stage[2].replica.role is Role.FENCED
    stage.configure(members("12", epoch=4), 2)
    assert stage[2].replica.role is Role.JOINING


def test_a_node_of_an_older_epoch_is_fenced_when_it_sends_a_request() -> None:
    """V15: only requests get a response, or two nodes would fence each other for ever."""
    stage = Stage(2).play()
    replica = stage[2].replica

    assert [effect.message for effect in replica.handle(Received(ONE, DescribeLog(Epoch(1))))] == [
        Fenced(Epoch(2))]
    assert replica.handle(Received(ONE, Fenced(Epoch(1)))) == []
    assert replica.handle(Received(ONE, Fenced(Epoch(2)))) == []


def test_an_older_configuration_is_ignored() -> None:
    """V15: the controller's configurations may come late, twice, or out of order."""
    stage = Stage(2).play(epoch=5)
    for old in (members("21", epoch=4), members("12", epoch=5),
                members("21", epoch=5, version=4)):
        stage.configure(old)

    assert stage.script() == ""
    assert stage[1].replica.is_leader


def test_a_log_is_not_led_by_a_configuration_older_than_itself() -> None:
    """V14: only members of the highest known epoch may be the source."""
    stage = Stage(1)
    stage[1].fill(1, 7)

    stage.configure(members("1", epoch=3))
    assert stage[1].replica.role is Role.NONE
    stage.configure(members("1", epoch=8))
    assert stage[1].replica.is_leader


def test_a_node_that_is_no_longer_a_member_does_nothing() -> None:
    stage = Stage(2).play()

    stage.configure(members("1", epoch=3))

    assert stage[2].replica.role is Role.NONE
    assert not stage[2].replica.is_serving
    stage.script()
    stage.tick(2)
    assert stage.script() == ""


def test_a_crash_may_lose_batches_that_were_committed() -> None:
    """V13, V17: chain.N1; the stored commit point is beyond the end of the log."""
    log = ModelLog(is_durable=False, clamps_epochs=False)
    log.add(width=2, epoch=1, batch_type=1, number=1)

    replica = Replica(ONE, log, committed=Mark(LogOffset(9), Offset(9)), broker_epoch=1,
                      window_size=1)

    assert replica.committed == Mark(LogOffset(2), Offset(2))
    replica.invariants()


def test_one_partition_restarts_without_memory() -> None:
    """V13: node 2 comes back with its log and nothing else."""
    stage = Stage(3).play()
    stage.produce(1, 3)
    stage.deliver()
    stage.waiting.clear()
    for name in (1, 2, 3):
        stage[name].restart()

    stage.configure(members("123", epoch=3))
    stage.run()

    assert stage[3].log.batches == stage[2].log.batches == stage[1].log.batches
    assert stage[1].replica.committed.log == 5


def test_a_message_that_names_the_receiver_as_its_sender_has_no_effect() -> None:
    """V11: a new head waits for the other members, not for itself."""
    stage = Stage(2)
    stage.configure(members("12", epoch=2), 1)
    stage.script()

    stage[1].happens(Received(ONE, LogDescription(
        Epoch(2), DescribeReason.RESPONSE, 0, LogOffset(0), LogOffset(0), LogOffset(0), ())))

    assert stage.script() == ""
    assert stage[1].replica.role is Role.RECOVERING


def test_how_far_behind_a_member_is() -> None:
    stage = Stage(2, window_size=1).play()
    stage.produce(1, 3)
    stage.deliver()

    assert stage[2].replica.relay.lag == 2
    assert stage[1].replica.relay.lag == 0
    assert stage[1].replica.handle(Configured(members("12", epoch=2))) == []
