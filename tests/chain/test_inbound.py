"""Receiving: gaps, duplicates, histories that diverge, and what may never be truncated."""

from quipu.chain.events import PeerUp, Received
from quipu.chain.messages import BEGIN, OPEN, TRUNCATE, Mark, Replicate
from quipu.chain.roles import Role
from quipu.model.ids import Epoch, LogOffset, NodeId, Offset
from tests.chain.stage import Stage, members, scene

ONE = NodeId(1)


def test_a_gap_is_rejected_and_sent_again_from_the_last_in_order() -> None:
    """V11: chain.I2; the first of two messages is lost."""
    stage = Stage(2).play()
    stage.produce(1)
    stage.produce(1)
    stage.lose()
    stage.run()

    assert stage.script() == scene("""
        1 append 1
        1 -> 2 replicate after 1/2 [1]
        1 append 1
        1 -> 2 replicate after 2/2 [1]
        2 -> 1 rejection: ends at 1, epochs 2@0
        1 -> 2 open replicate after 1/2 [2]
        2 append 2
        2 commits 3
        2 -> 1 ack 3 of 3
        1 commits 3
        """)


def test_one_rejection_for_a_whole_window() -> None:
    """V11: messages after a gap are dropped without a response, and sent again."""
    stage = Stage(2).play()
    for _ in range(4):
        stage.produce(1)
    stage.lose()
    stage.script()
    stage.run()

    assert stage.script().count("rejection") == 1
    assert stage[2].log.batches == stage[1].log.batches


def test_the_loss_of_the_last_message_is_seen_by_a_heartbeat() -> None:
    """V11: the heartbeat says where the sender's batches end."""
    stage = Stage(3).play()
    stage.produce(1)
    stage.lose()
    stage.script()

    stage.tick()
    stage.run()

    assert stage.script() == scene("""
        1 -> 2 replicate after 2/2
        2 -> 1 rejection: ends at 1, epochs 2@0
        1 -> 2 open replicate after 1/2 [1]
        2 append 1
        2 -> 3 replicate after 1/2 [1]
        3 append 1
        3 commits 2
        3 -> 2 ack 2 of 2
        2 commits 2
        2 -> 1 ack 2 of 2
        1 commits 2
        """)


def test_a_message_that_comes_twice_is_acknowledged_again() -> None:
    """V10: the first acknowledgement may be what was lost."""
    stage = Stage(2).play()
    stage.produce(1)
    twice = stage.waiting[0]
    stage.run()
    stage.script()

    stage.waiting.append(twice)
    stage.run()

    assert stage.script() == "2 -> 1 ack 2 of 2"
    assert stage[2].log.batches == stage[1].log.batches


def test_messages_out_of_order_end_in_order() -> None:
    stage = Stage(2).play()
    for _ in range(3):
        stage.produce(1)
    stage.deliver(2)
    stage.deliver(1)
    stage.run()
    stage.tick()
    stage.run()

    assert stage[2].log.batches == stage[1].log.batches
    assert stage[1].replica.committed.log == 4


def test_the_epoch_before_is_compared_within_a_session() -> None:
    """V11: the ends are the same, the histories are not; the message is rejected."""
    stage = Stage(2).play()
    stage.produce(1)
    sender, to, message = stage.waiting.pop()
    assert isinstance(message, Replicate)
    assert message.prev_end == stage[2].log.log_end
    stage.script()

    stage.waiting.append((sender, to, message._replace(prev_epoch=Epoch(1))))
    stage.deliver()

    assert stage.script() == "2 -> 1 rejection: ends at 1, epochs 2@0"
    stage.run()
    assert stage[2].log.batches == stage[1].log.batches


def test_batches_are_taken_from_the_predecessor_only() -> None:
    """V15: node 3 takes batches from node 2 and from no other node."""
    stage = Stage(3).play()
    stage.produce(1)
    message = stage.lose()
    stage.script()

    stage[3].happens(Received(ONE, message))

    assert stage.script() == ""
    assert stage[3].log.log_end == 1


def test_a_divergent_tail_is_truncated_where_the_histories_diverge() -> None:
    """V14: chain.I1, chain.I4; node 1 was head, and had batches that no other node got."""
    stage = Stage(3).play()
    stage.produce(1, 3)
    stage.waiting.clear()
    stage.configure(members("23", offline="1", epoch=3), 2, 3)
    stage.run(1)
    stage.produce(2)
    stage.run(1)
    stage.script()

    stage.configure(members("23", "1", epoch=3, version=4))
    stage.run()

    assert scene("""
        1 truncates at 1
        1 -> 3 rejection: ends at 1, epochs 2@0
        3 -> 1 open replicate after 1/2 [2]
        1 append 2
        """) in stage.script()
    assert stage[1].log.batches == stage[2].log.batches == stage[3].log.batches


def test_a_truncation_that_failed_is_asked_for_again_in_a_new_session() -> None:
    """V11, V14: chain.I4; the disk was full, and the connection was lost meanwhile."""
    stage = Stage(3).play()
    stage.produce(1, 3)
    stage.waiting.clear()
    stage.configure(members("23", offline="1", epoch=3), 2, 3)
    stage.run(1)
    stage[1].disk_is_full = True
    stage.configure(members("23", "1", epoch=3, version=4))
    stage.run()
    assert stage[1].log.log_end == 4

    stage[3].happens(PeerUp(NodeId(1)))
    stage.run()
    stage[1].disk_is_full = False
    stage.tick(3)
    stage.run()

    assert stage[1].log.batches == stage[2].log.batches == stage[3].log.batches


def test_a_truncation_below_what_is_committed_halts() -> None:
    """V14: chain.I3; three offsets are committed at node 2; node 1 has another history there."""
    stage = Stage(2)
    stage[1].fill(1, 1, 3)
    stage[2].fill(1, 1, 2, 2)
    stage[2].restart(committed=Mark(LogOffset(3), Offset(2)))

    stage.configure(members("12", epoch=4))
    stage.run()

    assert stage.script().splitlines()[-2:] == [
        "1 -> 2 open truncate replicate after 2/1",
        "2 halts: node 1 asks to truncate the log at 2, but everything below 3 is committed"]
    assert stage[2].replica.role is Role.HALTED
    assert stage[2].log.log_end == 4


def test_a_log_without_a_shared_epoch_is_not_dropped_if_it_has_committed_batches() -> None:
    """V14: an empty log is replaced, and one that retention has overtaken; never this one."""
    stage = Stage(2)
    stage[1].fill(3, 3)
    stage[2].fill(1, 1, 1)
    stage[2].restart(committed=Mark(LogOffset(2), Offset(1)))

    stage.configure(members("12", epoch=4))
    stage.run()

    assert stage[2].replica.role is Role.HALTED
    assert "shares no epoch" in stage[2].replica.halt_reason
    assert stage[2].log.log_end == 3


def test_a_halted_replica_tries_again_in_a_new_epoch() -> None:
    stage = Stage(2)
    stage[1].fill(1, 1, 3)
    stage[2].fill(1, 1, 2, 2)
    stage[2].restart(committed=Mark(LogOffset(3), Offset(2)))
    stage.configure(members("12", epoch=4))
    stage.run()
    assert stage[2].replica.is_quiet

    stage.configure(members("2", offline="1", epoch=5))
    stage.run()

    assert stage[2].replica.is_leader


def test_an_old_truncation_does_not_truncate_twice() -> None:
    """V11: chain.I4; the message comes again after the log has grown back."""
    stage = Stage(2)
    stage[1].fill(1, 2)
    stage[2].fill(1, 1, 1)
    stage.configure(members("12", epoch=3))
    truncation = None
    while stage.waiting:
        message = stage.waiting[0][2]
        if isinstance(message, Replicate) and message.flags & TRUNCATE:
            truncation = message
        stage.deliver()
    assert truncation is not None
    assert truncation.flags == OPEN | TRUNCATE
    stage.script()

    stage[2].happens(Received(ONE, truncation))

    assert "truncates" not in stage.script()
    assert stage[2].log.batches == stage[1].log.batches


def test_a_truncation_for_an_earlier_end_of_the_log_is_rejected() -> None:
    """V14: the sender must know where the log ends before it may truncate it."""
    stage = Stage(2)
    stage[2].fill(1, 1, 1, 1)
    stage.configure(members("12", epoch=3), 2)
    stage.waiting.clear()
    stage.script()

    stage[2].happens(Received(ONE, Replicate(
        Epoch(3), 3, OPEN | TRUNCATE, 9, LogOffset(2), Epoch(1), Mark(LogOffset(0), Offset(0)),
        Mark(LogOffset(0), Offset(0)), LogOffset(2), LogOffset(3), ())))

    assert stage.script() == "2 -> 1 rejection: ends at 4, epochs 1@0"
    assert stage[2].log.log_end == 4


def test_a_serving_member_does_not_truncate_its_log() -> None:
    """V14: chain.I5; its predecessor asks for it, though their logs cannot differ."""
    stage = Stage(3).play()
    stage.produce(1)
    stage.deliver()
    log_end = stage[2].log.log_end
    stage.script()

    stage[2].happens(Received(ONE, Replicate(
        Epoch(2), 2, OPEN | TRUNCATE, 1 << 50, LogOffset(log_end - 1), Epoch(2), BEGIN, BEGIN,
        log_end, log_end, ())))

    assert stage.script() == f"2 -> 1 rejection: ends at {log_end}, epochs 2@0"
    assert stage[2].replica.is_serving
    assert stage[2].log.log_end == log_end


def test_the_sender_learns_what_has_arrived_before_it_is_acknowledged() -> None:
    """V9: node 3 is silent, so nothing is acknowledged; still node 1 learns what has arrived."""
    stage = Stage(3, window_size=100).play()
    stage.produce(1, 4)
    stage.run(3)

    acks = [line for line in stage.script().splitlines() if line.startswith("2 -> 1 ack")]
    assert acks
    assert acks[-1] == "2 -> 1 ack 1 of 5"
