"""Sending: windows, full send buffers, going back to where the other log ends."""

from quipu.chain.events import Drained, PeerDown, PeerUp, Received
from quipu.chain.messages import DescribeReason, LogDescription
from quipu.chain.roles import Role
from quipu.model.ids import Epoch, LogOffset, NodeId
from quipu.sim.worlds.chain_log import BATCH_SIZE
from tests.chain.stage import Stage, members, scene

TWO = NodeId(2)


def test_a_node_goes_on_before_its_successor_acknowledges() -> None:
    """V9: replication is pipelined; the last acknowledgement covers all batches."""
    stage = Stage(2).play()

    stage.produce(1)
    stage.produce(1)
    stage.deliver()
    stage.deliver()
    assert stage.script() == scene("""
        1 append 1
        1 -> 2 replicate after 1/2 [1]
        1 append 1
        1 -> 2 replicate after 2/2 [1]
        2 append 1
        2 commits 2
        2 -> 1 ack 2 of 2
        2 append 1
        2 commits 3
        2 -> 1 ack 3 of 3
        """)
    stage.lose()
    stage.run()
    assert stage.script() == "1 commits 3"


def test_what_is_in_flight_fits_the_window() -> None:
    """V9: chain.O3; two batches fit; each acknowledgement makes room for more."""
    stage = Stage(2, window_size=2 * BATCH_SIZE).play()

    stage.produce(1, 5)
    assert stage.script() == scene("""
        1 append 5
        1 -> 2 replicate after 1/2 [2]
        """)
    stage.run()

    sends = [line for line in stage.script().splitlines() if "replicate" in line]
    assert sends == ["1 -> 2 replicate after 3/2 [2]", "1 -> 2 replicate after 5/2 [1]"]
    assert stage[1].replica.committed.log == 6


def test_a_rejection_before_anything_was_sent_has_no_effect() -> None:
    """V11: chain.O2; no session is open, and the rejected one has no number."""
    stage = Stage(2)
    stage.configure(members("12", epoch=2), 1)
    stage.script()

    stage[1].happens(Received(TWO, LogDescription(
        Epoch(2), DescribeReason.REJECTION, 0, LogOffset(0), LogOffset(0), LogOffset(0), ())))

    assert stage.script() == ""
    assert stage[1].replica.role is Role.RECOVERING


def test_a_full_send_buffer_is_tried_again_when_it_is_drained() -> None:
    """V10: what could not be sent is in the log, and is sent from there."""
    stage = Stage(2).play()
    stage[1].refuses = True
    stage.produce(1)
    stage.produce(1)
    assert not stage.waiting

    stage[1].refuses = False
    stage[1].happens(Drained(TWO))
    stage.run()

    assert "1 -> 2 replicate after 1/2 [2]" in stage.script()
    assert stage[1].replica.committed.log == 3


def test_a_full_send_buffer_is_tried_again_at_a_tick() -> None:
    stage = Stage(2).play()
    stage[1].refuses = True
    stage.produce(1)
    stage[1].refuses = False

    stage.tick(1)
    stage.run()

    assert stage[1].replica.committed.log == 2


def test_a_new_connection_is_a_new_session() -> None:
    """V13: chain.O1, chain.N3; what was in flight is lost, and read again from the log."""
    stage = Stage(2).play()
    stage.produce(1)
    stage[1].happens(PeerDown(TWO))
    stage.lose()
    stage.produce(1)
    assert not stage.waiting
    stage.script()

    stage[1].happens(PeerUp(TWO))
    stage.run()

    assert stage.script() == scene("""
        1 -> 2 open replicate after 3/2
        2 -> 1 rejection: ends at 1, epochs 2@0
        1 -> 2 open replicate after 1/2 [2]
        2 append 2
        2 commits 3
        2 -> 1 ack 3 of 3
        1 commits 3
        """)


def test_an_acknowledgement_of_an_old_session_is_ignored() -> None:
    """V10: chain.O2; node 2 acknowledged in a session that is over, and not in the new one."""
    stage = Stage(2).play()
    stage.produce(1)
    stage.deliver()
    ack = stage.waiting.pop()
    stage[1].happens(PeerUp(TWO))
    stage.waiting.clear()
    stage.script()

    stage.waiting.append(ack)
    stage.run()

    assert stage.script() == ""
    assert stage[1].replica.committed.log == 1


def test_a_successor_that_cannot_write_is_asked_once_per_tick() -> None:
    """V11: one rejection does not cause the next while its disk is full."""
    stage = Stage(2).play()
    stage[2].disk_is_full = True
    stage.produce(1)
    stage.run()
    stage.script()

    stage.tick(1)
    stage.run()
    assert stage.script() == scene("""
        1 -> 2 replicate after 2/2
        2 -> 1 rejection: ends at 1, epochs 2@0
        1 -> 2 open replicate after 1/2 [1]
        """)

    stage[2].disk_is_full = False
    stage.tick(1)
    stage.run()
    assert stage[1].replica.committed.log == 2


def test_retention_may_overtake_a_slow_successor() -> None:
    """V16: what it lacks is gone, so its log is replaced, and begins where the sender's does."""
    stage = Stage(2)
    stage[1].fill(1, 1)
    stage[2].fill(1, 1)
    stage.configure(members("1", "2", epoch=2))
    stage.run(2)
    stage.produce(1)
    stage[1].log.add(width=1, epoch=2, batch_type=5, number=7)
    stage.produce(1)
    stage[1].log.trim(4)

    stage.tick(1)
    stage.run()

    assert "2 restarts at 4" in stage.script()
    assert stage[2].log.batches == stage[1].log.batches


def test_a_quiet_chain_sends_nothing() -> None:
    """V11: heartbeats find what is missing; if nothing is, none is needed."""
    stage = Stage(3).play()
    stage.produce(1)
    stage.run()
    assert all(actor.replica.is_quiet for actor in stage.actors.values())
    stage.script()

    stage.tick()

    assert stage.script() == ""
