"""A new head: which log it chooses, and how it fetches it."""

from quipu.chain.events import PeerUp
from quipu.chain.messages import Mark
from quipu.chain.roles import Role
from quipu.model.ids import LogOffset, NodeId, Offset
from tests.chain.stage import Stage, members, scene


def test_the_longest_log_by_epoch_and_end_wins() -> None:
    """V14: chain.R2; node 3 has most batches, of an older epoch; node 2's log is chosen."""
    stage = Stage(3)
    stage[1].fill(1, 1, 2)
    stage[2].fill(1, 1, 2, 2, 2)
    stage[3].fill(1, 1, 1, 1, 1, 1)

    stage.configure(members("123", epoch=4))
    stage.run()

    assert stage.script() == scene("""
        1 -> 2 describe 4
        1 -> 3 describe 4
        2 -> 1 announcement: ends at 5, epochs 1@0 2@2
        3 -> 2 announcement: ends at 6, epochs 1@0
        3 -> 1 announcement: ends at 6, epochs 1@0
        2 -> 1 response: ends at 5, epochs 1@0 2@2
        3 -> 1 response: ends at 6, epochs 1@0
        1 -> 2 fetch: ends at 3, epochs 1@0 2@2
        2 -> 1 open replicate after 3/2 [2]
        1 append 2
        1 begins epoch 4
        1 leads
        1 -> 2 open replicate after 5/2 [1]
        2 append 1
        2 serves
        2 -> 3 open truncate replicate after 2/1
        3 truncates at 2
        3 -> 2 rejection: ends at 2, epochs 1@0
        2 -> 3 open replicate after 2/1 [4]
        3 append 4
        3 serves
        3 commits 6
        3 -> 2 ack 6 of 6
        2 commits 6
        2 -> 1 ack 6 of 6
        1 commits 6
        """)
    assert stage[1].log.batches == stage[2].log.batches == stage[3].log.batches


def test_a_new_head_truncates_a_tail_that_only_it_has() -> None:
    """V14: batches of an older epoch that only the head has are replaced by fetched ones."""
    stage = Stage(2)
    stage[1].fill(1, 1, 2, 2)
    stage[2].fill(1, 1, 3)

    stage.configure(members("12", epoch=4))
    stage.run()

    assert scene("""
        1 -> 2 fetch: ends at 4, epochs 1@0 2@2
        2 -> 1 open truncate replicate after 2/1
        1 truncates at 2
        1 -> 2 rejection: ends at 2, epochs 1@0
        2 -> 1 open replicate after 2/1 [1]
        1 append 1
        1 begins epoch 4
        """) in stage.script()
    assert stage[1].log.batches == stage[2].log.batches


def test_a_new_head_that_would_lose_something_committed_halts() -> None:
    """V14: nothing below the committed offset is ever truncated: the replica halts."""
    stage = Stage(2)
    stage[1].fill(1, 1, 2, 2)
    stage[1].restart(committed=Mark(LogOffset(3), Offset(2)))
    stage[2].fill(1, 1, 3)

    stage.configure(members("12", epoch=4))
    stage.run()
    stage.tick()
    stage.run()

    assert stage[1].replica.role is Role.HALTED
    assert "everything below 3 is committed" in stage[1].replica.halt_reason
    assert stage[1].log.log_end == 4
    assert not stage[1].replica.is_leader


def test_an_empty_head_begins_with_what_is_left_of_the_longest_log() -> None:
    """V14, V16: retention has dropped the beginning; the head's log begins in the middle too."""
    stage = Stage(2)
    stage[2].fill(1, 1, 1)
    stage[2].log.add(width=1, epoch=1, batch_type=5, number=7)
    stage[2].fill(1)
    stage[2].log.trim(3)

    stage.configure(members("12", epoch=2))
    stage.run()

    assert stage[1].log.log_start == 3
    assert stage[1].log.batches == stage[2].log.batches
    assert stage[1].replica.is_leader


def test_no_log_is_chosen_before_all_members_have_responded() -> None:
    """V14: chain.R1; a silent member may have the longest log; it is asked until it responds."""
    stage = Stage(3)
    stage[3].fill(1, 1)
    stage.configure(members("123", epoch=4))
    stage.run(3)

    assert stage[1].replica.role is Role.RECOVERING
    stage.script()
    stage.tick(1)
    assert stage.script() == "1 -> 3 describe 4"
    stage[1].happens(PeerUp(NodeId(3)))
    stage.run()

    assert stage[1].replica.is_leader
    assert stage[1].log.batches == stage[3].log.batches


def test_a_fetch_that_was_lost_is_repeated() -> None:
    stage = Stage(2)
    stage[2].fill(1, 1)
    stage.configure(members("12", epoch=4))
    while not stage.script().endswith("fetch: ends at 0, epochs"):
        stage.deliver()
    stage.lose(-1)
    stage.run()
    assert stage[1].log.log_end == 0

    stage.tick()
    stage.tick()
    stage.run()

    assert stage[1].replica.is_leader


def test_a_new_epoch_in_the_middle_of_a_fetch_starts_the_recovery_again() -> None:
    """V15: the batches that were fetched stay; the new epoch's head decides about the rest."""
    stage = Stage(3, window_size=1)
    stage[2].fill(1, 1, 1)
    stage.configure(members("123", epoch=4))
    while stage[1].log.log_end < 2:
        stage.deliver()

    stage.configure(members("13", offline="2", epoch=5))
    stage.run(2)

    assert stage[1].replica.is_leader
    assert stage[1].log.log_end == 3
    assert stage[3].log.batches == stage[1].log.batches


def test_a_restarted_head_does_not_continue_its_epoch() -> None:
    """V15: an earlier process began it, and may have sent batches that this one has lost."""
    stage = Stage(2).play()
    stage[1].restart()

    stage.configure(members("12", epoch=2), 1)

    assert stage[1].replica.role is Role.HALTED
    stage.configure(members("12", epoch=3))
    stage.run()
    assert stage[1].replica.is_leader
