"""What passes through a node: acknowledgements, commit points, members that catch up."""

from quipu.chain.events import TICK
from quipu.chain.relay import HELD_TICKS_MAX
from tests.chain.stage import Stage, members, scene


def test_a_batch_is_acknowledged_from_the_tail() -> None:
    """V9, V10, V12: down the chain it is appended, up the chain it becomes committed."""
    stage = Stage(3).play()
    stage.produce(1, 2)
    stage.run()

    assert stage.script() == scene("""
        1 append 2
        1 -> 2 replicate after 1/2 [2]
        2 append 2
        2 -> 3 replicate after 1/2 [2]
        3 append 2
        3 commits 3
        3 -> 2 ack 3 of 3
        2 commits 3
        2 -> 1 ack 3 of 3
        1 commits 3
        """)


def test_acknowledgements_wait_for_the_disk_if_they_must() -> None:
    """V10, V17: with flush.messages=1 a batch is committed when all have flushed it."""
    stage = Stage(2, is_durable=True).play()
    stage.flush(1)
    stage.flush(2)
    stage.run()
    stage.script()

    stage.produce(1)
    stage.run()
    stage.flush(2)
    stage.run()
    stage.flush(1)
    stage.run()

    assert stage.script() == scene("""
        1 append 1
        1 -> 2 replicate after 1/2 [1]
        2 append 1
        2 flushes
        2 -> 1 ack 2 of 2
        1 flushes
        1 commits 2
        1 -> 2 replicate after 2/2
        2 commits 2
        2 -> 1 ack 2 of 2
        """)


def test_the_tail_waits_for_disks_before_it() -> None:
    """V3, V17: a committed read at the tail shows nothing that the head may still lose."""
    stage = Stage(3, is_durable=True).play()
    for name in (1, 2, 3):
        stage.flush(name)
    stage.run()
    stage.produce(1)
    stage.run()

    for name, want in ((3, 1), (1, 1), (2, 2)):
        stage.flush(name)
        stage.run()
        assert stage[3].replica.committed.log == want

    assert all(actor.replica.is_quiet for actor in stage.actors.values())


def test_acknowledgements_also_flow_on_an_interval() -> None:
    """V9: node 3 is silent; node 2 still acknowledges to node 1."""
    stage = Stage(3).play()
    stage.produce(1)
    stage.run(3)
    stage.script()

    stage.tick(2)

    assert "2 -> 1 ack 1 of 2" in stage.script()


def test_a_lost_acknowledgement_is_sent_again() -> None:
    stage = Stage(2).play()
    stage.produce(1)
    stage.deliver()
    stage.lose()
    assert not stage[1].replica.is_quiet

    stage.tick(1)
    stage.run()

    assert stage[1].replica.committed.log == 2
    assert stage[1].replica.is_quiet


def test_a_member_that_rejoins_is_reported_when_it_has_everything() -> None:
    """V7, V16: it is sent what it lacks; once it has it, nothing is committed without it."""
    stage = Stage(2)
    stage[1].fill(1, 1, 1)
    stage.configure(members("1", "2", epoch=2))
    stage.run()

    assert stage.script() == scene("""
        1 begins epoch 2
        1 leads
        1 -> 2 open replicate after 4/2
        1 commits 4
        2 -> 1 announcement: ends at 0, epochs
        2 -> 1 rejection: ends at 0, epochs
        1 -> 2 open replicate after 0/-1 [4]
        2 append 4
        2 commits 4
        2 -> 1 ack 4 of 4
        1 reports 2 in version 2
        """)
    stage.produce(1)
    assert stage[1].replica.committed.log == 4  # from now on 2 is waited for
    stage.run()
    assert stage[1].replica.committed.log == 5

    stage.tick(1)
    assert "1 reports 2 in version 2" in stage.script()  # the first report may be lost
    stage.configure(members("12", epoch=3))
    stage.run()
    assert stage[2].replica.is_serving


def test_a_member_that_has_not_flushed_the_configuration_is_not_reported() -> None:
    """V7: chain.C1; it has all that was acknowledged, but a crash would take the one batch that
    makes it a member of this epoch.
    """
    stage = Stage(2, is_durable=True)
    for name in (1, 2):
        stage[name].fill(1, 1, 1)
        stage.flush(name)
    stage.configure(members("1", "2", epoch=2))
    stage.run()

    script = stage.script()
    assert "2 -> 1 ack 3 of 4" in script  # the configuration is batch 3, written and not flushed
    assert "reports" not in script
    stage.flush(2)
    stage.run()
    assert "1 reports 2 in version 2" in stage.script()


def test_commits_do_not_wait_for_a_syncing_member_that_is_far_behind() -> None:
    """V7: the tail goes on serving while it streams."""
    stage = Stage(2, window_size=1)
    stage[1].fill(1, 1, 1)
    stage.configure(members("1", "2", epoch=2))

    stage.produce(1, 3)

    assert stage[1].replica.committed.log == 7


def test_under_load_commits_wait_for_a_syncing_member_at_the_end() -> None:
    """V7: batches come faster than acknowledgements; still the member gets in sync."""
    stage = Stage(2)
    stage.configure(members("1", "2", epoch=2))
    reported = False
    for _ in range(50):
        stage.produce(1)
        for _ in range(min(2, len(stage.waiting))):
            stage.deliver()
        reported = reported or "reports 2" in stage.script()

    assert reported


def test_commits_stop_waiting_for_a_syncing_member_that_goes_silent() -> None:
    """V7: it was close, so it was required; then it went silent before it had everything."""
    stage = Stage(2)
    stage.configure(members("1", "2", epoch=2))
    while "2 -> 1 ack" not in stage.script():
        stage.deliver()
    stage.produce(1)
    stage.deliver()  # the ack: everything is sent, not everything has arrived
    stage.waiting.clear()
    stage.produce(1)
    assert "reports" not in stage.script()
    assert (stage[1].replica.committed.log, stage[1].log.log_end) == (2, 3)

    for _ in range(HELD_TICKS_MAX + 1):
        stage.tick(1)
        stage.waiting.clear()
    stage.produce(1)

    assert stage[1].replica.committed.log == stage[1].log.log_end == 4


def test_a_chain_of_syncing_members_is_reported_from_the_front() -> None:
    """V7: 3 is in sync with 2, but is not reported before 2 is required itself."""
    stage = Stage(3)
    stage[1].fill(1, 1)
    stage.configure(members("1", "23", epoch=2))
    stage.run()
    reports = [line for line in stage.script().splitlines() if "reports" in line]
    assert reports == ["1 reports 2 in version 2"]

    stage.tick()
    stage.run()

    assert "2 reports 3 in version 2" in stage.script()


def test_a_report_is_for_one_version() -> None:
    """V15: the reported member itself may have restarted since."""
    stage = Stage(2)
    stage.configure(members("1", "2", epoch=2))
    stage.run()
    assert "1 reports 2 in version 2" in stage.script()

    stage[1].happens(TICK)
    stage.waiting.clear()
    stage.configure(members("1", "2", epoch=2, version=3), 1)
    stage.script()
    stage[1].happens(TICK)

    assert "reports" not in stage.script()
    stage.configure(members("1", "2", epoch=2, version=3), 2)
    stage.run()
    assert "1 reports 2 in version 3" in stage.script()


def test_commits_do_not_wait_for_a_member_that_has_left() -> None:
    """V21: after a report the syncing member is required; a new version ends that."""
    stage = Stage(2)
    stage.configure(members("1", "2", epoch=2))
    stage.run()
    stage.produce(1)
    stage.waiting.clear()
    assert stage[1].replica.committed.log < stage[1].log.log_end

    stage.configure(members("1", offline="2", epoch=2, version=3), 1)

    assert stage[1].replica.committed.log == stage[1].log.log_end


def test_a_partition_moves_to_another_chain() -> None:
    """V6: 1 and 2 have it; 3 and 4, of another chain, catch up behind them, serve, stay alone."""
    stage = Stage(4)
    stage[1].fill(1, 1)
    stage[2].fill(1, 1)
    stage.configure(members("12", "34", epoch=2))
    stage.run()
    stage.tick()
    stage.run()
    script = stage.script()
    assert "2 reports 3 in version 2" in script
    assert "3 reports 4 in version 2" in script

    stage.configure(members("1234", epoch=3))
    stage.run()
    stage.produce(1)
    stage.run()
    assert all(actor.replica.is_serving for actor in stage.actors.values())
    stage.configure(members("34", epoch=4))
    stage.run()

    assert stage[3].replica.is_leader
    assert not stage[1].replica.is_serving
    assert stage[4].log.batches == stage[3].log.batches
    assert stage[4].log.batches[:5] == stage[1].log.batches
