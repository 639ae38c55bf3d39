"""The quorum's driver: committed proposals stay, whichever nodes stop or are killed, and when."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quipu.broker.quorum import NotController, Quorum
from quipu.model.batch_types import CONTROLLER
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import NodeId, RaftIndex
from quipu.runtime.disks.disk import DiskError, RealDisk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.directory.reserve import Reserve
from quipu.storage.state_log import StateLog
from tests.broker.quorum.quorums import (
    CLOCK,
    Machine,
    Node,
    config,
    leader_of,
    new_disk,
    open_log,
    started,
    stop,
    until,
)
from tests.killed import killed
from tests.looped import looped, timeless
from tests.storage.builders import Freeing
from tests.storage.log_storage import LogStorage


async def alone(disk: SimDisk | RealDisk, directory: str = "data/__cluster-0",
                **more: Any) -> tuple[Quorum, Machine]:
    machine = Machine()
    quorum = Quorum(machine, config(1, [1]), log=open_log(disk, directory), clock=CLOCK,
                    rng=SeededRng(1), **more)
    await quorum.start()
    return quorum, machine


@timeless
async def test_a_quorum_of_one_leads_at_once() -> None:
    """T7: no waiting for an election; what is proposed is applied when the call returns."""
    began = CLOCK.monotonic()
    quorum, machine = await alone(new_disk())
    assert CLOCK.monotonic() - began < 0.05  # half of the shortest election timeout
    assert quorum.is_leader
    assert quorum.leader == 1
    assert machine.leads == [True]

    index = await quorum.propose([b"a", b"b"])

    assert machine.state == [b"a", b"b"]
    assert quorum.last_applied == index
    await quorum.barrier()
    await quorum.stop()
    assert machine.leads == [True, False]


@timeless
async def test_on_a_full_disk_the_reserve_is_used() -> None:
    """K8, T7: votes and decisions are written, now and at the next start; without a reserve they
    wait for room, and the log says so.
    """
    disk = Freeing(new_disk())
    reserve = Reserve(disk, "data")
    reserve.keep()
    quorum, machine = await alone(disk, lend=reserve.lend)
    disk.capacity = 0
    await quorum.propose([b"a"])
    assert machine.state == [b"a"]
    assert reserve.is_drawn
    await quorum.stop()

    quorum, machine = await alone(disk, lend=Reserve(disk, "data").lend)
    assert machine.state == [b"a"]
    await quorum.propose([b"b"])
    await quorum.stop()


@timeless
async def test_a_start_on_a_full_disk_waits_for_room(caplog: pytest.LogCaptureFixture) -> None:
    """K8: and says what it waits for."""
    disk = new_disk()
    quorum, _ = await alone(disk)
    await quorum.propose([b"a"])
    await quorum.stop()
    disk.capacity = 0
    starting = asyncio.ensure_future(alone(disk))
    await asyncio.sleep(1)
    assert not starting.done()
    assert "the metadata cannot be written, and is tried again" in caplog.text
    disk.capacity = None
    quorum, machine = await starting
    assert machine.state == [b"a"]
    await quorum.stop()


@timeless
async def test_a_proposal_costs_one_sync_and_many_share_one(tmp_path: Path) -> None:
    """T7: group commit; one by one each has its own."""
    disk = new_disk()
    disk.is_deferred = True
    machine = Machine()
    quorum = Quorum(machine, config(1, [1]), log=open_log(disk), clock=CLOCK, rng=SeededRng(1))
    flusher = asyncio.ensure_future(_flush_all(disk))
    await quorum.start()
    before = _syncs(disk)
    await quorum.propose([b"a"])
    assert _syncs(disk) == before + 1

    await asyncio.gather(*(quorum.propose([b"%d" % number]) for number in range(500)))

    assert _syncs(disk) <= before + 4
    assert len(machine.state) == 501
    await quorum.stop()
    flusher.cancel()


async def _flush_all(disk: SimDisk) -> None:
    while True:
        await asyncio.sleep(0.001)
        disk.run_pending()


def _syncs(disk: SimDisk) -> int:
    return sum(count for path, count in disk.sync_counts.items() if path.endswith(".log"))


@looped
async def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """T7, T12: a restart finds every decision, and goes on."""
    quorum, _ = await alone(RealDisk(), str(tmp_path / "a"))
    for number in range(20):
        await quorum.propose([b"%d" % number])

    again, machine = await alone(RealDisk(), str(killed(tmp_path / "a", tmp_path / "b")))

    assert machine.state == [b"%d" % number for number in range(20)]
    assert again.term == quorum.term + 1
    await again.propose([b"more"])
    await quorum.stop()
    await again.stop()


@looped
async def test_a_log_of_the_single_node_broker_opens_as_a_quorum_of_one(tmp_path: Path) -> None:
    """T7: old data directories are data directories."""
    old = StateLog(LogStorage(open_log(RealDisk(), str(tmp_path / "a"))), CONTROLLER, CLOCK)
    await old.append([b"a", b"b"])
    await old.append([b"c"])

    quorum, machine = await alone(RealDisk(), str(killed(tmp_path / "a", tmp_path / "b")))
    assert machine.state == [b"a", b"b", b"c"]
    assert quorum.voters == (1,)
    await quorum.propose([b"d"])
    await quorum.stop()
    again, machine = await alone(RealDisk(), str(killed(tmp_path / "b", tmp_path / "c")))
    assert machine.state == [b"a", b"b", b"c", b"d"]
    await again.stop()


@looped
async def test_a_snapshot_of_the_single_node_broker_is_one_of_the_quorum(tmp_path: Path) -> None:
    """T7: and so is what follows it, however often the node is restarted."""
    old = StateLog(LogStorage(open_log(RealDisk(), str(tmp_path / "0"))), CONTROLLER, CLOCK)
    await old.append([b"gone"])
    await old.snapshot([b"a", b"b"])
    await old.append([b"c"])
    expected = [b"a", b"b", b"c"]

    for life in range(3):
        copy = killed(tmp_path / str(life), tmp_path / str(life + 1))
        quorum, machine = await alone(RealDisk(), str(copy))
        assert machine.state == expected
        expected.append(b"%d" % life)
        await quorum.propose([expected[-1]])
        await quorum.stop()


@timeless
async def test_an_old_log_makes_its_node_the_quorum_whatever_the_settings_say() -> None:
    """T7: other voters know nothing of what is in it."""
    disk = new_disk()
    await StateLog(LogStorage(open_log(disk)), CONTROLLER, CLOCK).append([b"a"])

    quorum = Quorum(Machine(), config(1, [1, 2, 3]), log=open_log(disk), clock=CLOCK,
                    rng=SeededRng(1))

    assert quorum.voters == (1,)


@timeless
async def test_three_nodes_decide_and_all_apply() -> None:
    """T6, T7: broker.quorum.Q2; every node gets every decision, in one order."""
    nodes = await started()
    leader = nodes[0]
    indexes = await asyncio.gather(
        *(leader.quorum.propose([b"%d" % number]) for number in range(100)))

    assert indexes == sorted(indexes)
    for node in nodes:
        await node.quorum.wait_applied(RaftIndex(indexes[-1]), 5)
        assert node.machine.state == [b"%d" % number for number in range(100)]
        assert await node.quorum.wait_leader(1) == leader.node_id
    await stop(nodes)


@timeless
async def test_who_does_not_lead_says_so() -> None:
    nodes = await started()
    follower = nodes[1].quorum

    for ask in (lambda: follower.propose([b"a"]), follower.barrier,
                lambda: follower.change_voters([NodeId(1)])):
        with pytest.raises(NotController) as refused:
            await ask()
        assert refused.value.code is Code.NOT_CONTROLLER
    with pytest.raises(TimeoutError):
        await follower.wait_applied(RaftIndex(10**6), 0.01)
    await stop(nodes)


@timeless
async def test_a_killed_leader_is_replaced_and_nothing_answered_is_lost() -> None:
    """T7: broker.quorum.Q1; again and again, with disks that lose what was not synced."""
    nodes = await started()
    committed: list[bytes] = []
    for life in range(4):
        leader = await leader_of(nodes)
        for number in range(5):
            command = b"%d.%d" % (life, number)
            await leader.quorum.propose([command])
            committed.append(command)
        await leader.kill(seed=life)
        others = [node for node in nodes if node is not leader]
        await leader_of(others)
        await leader.start()
    leader = await leader_of(nodes)
    await leader.quorum.barrier()

    assert leader.machine.state == committed
    await stop(nodes)


@timeless
async def test_all_nodes_killed_at_once_come_back_with_all() -> None:
    """T7: broker.quorum.Q3; one node that has it is enough, as a majority had it."""
    nodes = await started()
    for number in range(10):
        await nodes[0].quorum.propose([b"%d" % number])
    for seed, node in enumerate(nodes):
        await node.kill(seed=seed)
    for node in nodes:
        await node.start()
    leader = await leader_of(nodes)

    assert leader.machine.state == [b"%d" % number for number in range(10)]
    await stop(nodes)


@timeless
async def test_a_leader_that_is_cut_off_steps_down_and_its_callers_are_told() -> None:
    """T7: check-quorum; the outcome of its proposal is not known."""
    nodes = await started()
    leader, others = nodes[0], nodes[1:]
    await leader.quorum.propose([b"kept"])
    leader.switch.isolate(leader.node_id)

    with pytest.raises(NotController):
        await leader.quorum.propose([b"lost"])
    assert not leader.quorum.is_leader
    assert leader.machine.leads == [True, False]
    successor = await leader_of(others)
    await successor.quorum.propose([b"new"])
    leader.switch.cut.clear()
    await until(lambda: leader.machine.state == [b"kept", b"new"])
    await stop(nodes)


@timeless
async def test_a_barrier_of_a_deposed_leader_is_never_passed() -> None:
    """T7: a linearizable read asks whether the majority still follows."""
    nodes = await started()
    leader, others = nodes[0], nodes[1:]
    leader.switch.isolate(leader.node_id)
    barrier = asyncio.ensure_future(leader.quorum.barrier())
    await leader_of(others)

    with pytest.raises(NotController):
        await barrier
    leader.switch.cut.clear()
    await stop(nodes)


@timeless
async def test_a_clean_stop_hands_over() -> None:
    """T7: no election timeout passes without a leader."""
    nodes = await started()
    leader, others = nodes[0], nodes[1:]
    term = leader.quorum.term
    await leader.quorum.stop(transfer=True)

    successor = await leader_of(others)
    assert successor.quorum.term == term + 1
    await successor.quorum.propose([b"a"])
    await stop(nodes)


@timeless
async def test_an_observer_follows_and_its_loss_hurts_nobody() -> None:
    """T7: nodes that do not vote get every decision."""
    nodes = await started(observers=[9])
    leader, observer = nodes[0], nodes[-1]
    await leader.quorum.propose([b"a"])
    await until(lambda: observer.machine.state == [b"a"])
    view = leader.quorum.describe()
    assert [replica.node_id for replica in view.observers] == [9]

    await observer.kill()
    await leader.quorum.propose([b"b"])
    await observer.start()
    await until(lambda: observer.machine.state == [b"a", b"b"])
    await stop(nodes)


@timeless
async def test_voters_are_added_and_removed_under_load() -> None:
    """T7: one at a time, each new one with everything; the leader hands over before it goes."""
    nodes = await started(count=1, observers=[2, 3])
    leader = nodes[0]
    load = asyncio.ensure_future(_propose_many(leader, 200))
    await leader.quorum.change_voters([NodeId(1), NodeId(2), NodeId(3)])
    assert leader.quorum.voters == (1, 2, 3)
    await load
    with pytest.raises(NotController, match="removed itself"):
        await leader.quorum.change_voters([NodeId(2), NodeId(3)])
    successor = await leader_of(nodes[1:])
    await successor.quorum.change_voters([NodeId(2), NodeId(3)])

    assert successor.quorum.voters == (2, 3)
    await until(lambda: leader.quorum.voters == (2, 3))
    assert successor.machine.state == [b"%d" % number for number in range(200)]
    await stop(nodes)


async def _propose_many(leader: Node, count: int) -> None:
    for number in range(count):
        await leader.quorum.propose([b"%d" % number])


@timeless
async def test_a_voter_that_never_comes_is_refused_in_time() -> None:
    nodes = await started(count=1)
    with pytest.raises(RequestError, match="caught up"):
        await nodes[0].quorum.change_voters([NodeId(1), NodeId(7)], timeout_seconds=0.1)
    await nodes[0].quorum.propose([b"a"])
    await stop(nodes)


@timeless
async def test_a_node_that_missed_entries_is_sent_a_snapshot() -> None:
    """T7: the log is bounded; a node that is too far behind gets a snapshot."""
    nodes = await started(snapshot_due_size=2000, entries_kept=10)
    leader, late = nodes[0], nodes[1]
    await late.kill()
    expected = [b"%050d" % number for number in range(200)]
    for command in expected:
        await leader.quorum.propose([command])
    assert len(leader.log.segments) < 4
    await late.start()

    await until(lambda: late.machine.state == expected)
    assert late.machine.restored >= 1
    await late.kill(seed=3)
    await late.start()
    await until(lambda: late.machine.state == expected)
    await stop(nodes)


@timeless
async def test_a_node_with_an_empty_disk_rejoins() -> None:
    """V16: under its own name; it gets everything, and until then it elects nobody."""
    nodes = await started()
    leader, lost = nodes[0], nodes[1]
    for number in range(10):
        await leader.quorum.propose([b"%d" % number])
    await lost.kill()
    lost.disk = new_disk()
    await lost.start()

    await until(lambda: lost.machine.state == leader.machine.state)
    await leader.kill(seed=9)
    successor = await leader_of(nodes[1:])
    assert len(successor.machine.state) == 10
    await successor.quorum.propose([b"more"])
    await stop(nodes[1:])


@timeless
async def test_a_full_disk_is_told_and_gets_better_by_itself() -> None:
    """T12: no proposal succeeds that was not written."""
    disk = new_disk()
    quorum, machine = await alone(disk)
    disk.capacity = 10
    for _ in range(2):
        with pytest.raises(QuipuError, match=r"disk is full|no space"):
            await quorum.propose([b"a"])
    disk.capacity = None
    await until(lambda: machine.state == [b"a"])

    await quorum.propose([b"b"])
    assert machine.state == [b"a", b"b"]
    await quorum.stop()


@timeless
async def test_a_disk_that_cannot_sync_silences_its_node_alone() -> None:
    """T12: broker.quorum.Q4; the others elect a leader; no call succeeds on a bad disk."""
    nodes = await started()
    leader, others = nodes[0], nodes[1:]
    leader.disk.sync_error = DiskError("broken")

    with pytest.raises(NotController):
        await leader.quorum.propose([b"a"])
    successor = await leader_of(others)
    assert leader.quorum.failure is not None
    assert leader.quorum.leader is None
    await successor.quorum.propose([b"b"])
    await stop(nodes)


@timeless
async def test_bytes_that_are_no_message_are_dropped() -> None:
    """K8: another node's bytes are foreign bytes."""
    nodes = await started()
    for body in (b"", b"\xff", b"\x02" + b"\xff" * 60, b"\x00" * 7):
        nodes[1].switch.nets[nodes[1].node_id].receive(NodeId(1), 1, body)
    await nodes[0].quorum.propose([b"a"])
    await until(lambda: nodes[1].machine.state == [b"a"])
    assert nodes[1].quorum.failure is None
    await stop(nodes)


@timeless
async def test_too_much_at_once_is_refused() -> None:
    quorum, _ = await alone(new_disk())
    with pytest.raises(RequestError) as refused:
        await quorum.propose([bytes(5 << 20)])
    assert refused.value.code is Code.RECORD_LIST_TOO_LARGE
    await quorum.stop()
    with pytest.raises(NotController):
        await quorum.propose([b"a"])


@timeless
async def test_a_view_tells_who_is_how_far() -> None:
    """K6: the view that DescribeQuorum responds with."""
    nodes = await started()
    leader = nodes[0]
    index = await leader.quorum.propose([b"a"])
    for node in nodes:
        await node.quorum.wait_applied(index, 5)
    await until(lambda: all(voter.log_end == index + 1
                            for voter in leader.quorum.describe().voters))

    view = leader.quorum.describe()
    assert (view.leader, view.term, view.commit_index) == (
        leader.node_id, leader.quorum.term, index)
    now_ms = CLOCK.now_ms()
    for voter in view.voters:
        assert now_ms - 5000 < voter.last_fetch_ms <= now_ms
        assert now_ms - 5000 < voter.last_caught_up_ms <= now_ms
    follower = nodes[1].quorum.describe()
    assert {voter.log_end for voter in follower.voters if voter.node_id != nodes[1].node_id} == {-1}
    await stop(nodes)
