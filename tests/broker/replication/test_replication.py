"""Chains of real logs: produce, kill, shorten, rejoin, extend, cut; byte-identical in the end."""

import asyncio
import shutil
from pathlib import Path

import pytest

from quipu.broker.partitions.partition_errors import NotLeader
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
DURABLE = LogConfig(flush_messages=1)


async def chain_of(rig: Rig, count: int) -> list[ANode]:
    nodes = rig.nodes(count)
    rig.configure(serving=range(1, count + 1))
    await rig.leads(nodes[0])
    await rig.settled()
    return nodes


@looped
async def test_a_write_travels_down_the_chain(tmp_path: Path) -> None:
    """V2, V3, V9: taken at the head, acknowledged when the tail has it, read anywhere."""
    rig = Rig(tmp_path)
    a, b, c = await chain_of(rig, 3)
    assert (a.partition.is_leader, b.partition.is_leader) == (True, False)
    assert [await a.produce(b"one"), await a.produce(b"two", b"three")] == [0, 1]
    await rig.settled()
    for node in (a, b, c):
        assert node.values() == [b"one", b"two", b"three"]
    rig.check_identical()


@looped
async def test_only_the_head_takes_writes(tmp_path: Path) -> None:
    """V3: broker.partitions.P3; other nodes refuse, and say that they do not lead."""
    rig = Rig(tmp_path)
    _, b, c = await chain_of(rig, 3)
    for node in (b, c):
        with pytest.raises(NotLeader) as refused:
            node.append(b"x")
        assert refused.value.code == Code.NOT_LEADER_OR_FOLLOWER


@looped
async def test_what_is_not_committed_is_not_read(tmp_path: Path) -> None:
    """V3, V12: broker.partitions.P2; with the tail cut off, acks=1 completes and acks=all waits;
    only dirty readers see the record.
    """
    rig = Rig(tmp_path)
    a, b, c = await chain_of(rig, 3)
    rig.net.cut(2, 3)
    assert await a.produce(b"x", acks=1) == 0
    waiting = a.append(b"y")
    await rig.pass_time(3)
    assert not waiting.done()
    assert (a.values(), b.values(), c.values()) == ([], [], [])
    assert a.values(dirty=True) == b.values(dirty=True) == [b"x", b"y"]
    rig.net.heal()
    assert await waiting == 1
    await rig.settled()
    assert c.values() == [b"x", b"y"]


@looped
async def test_many_writes_are_in_flight_at_once(tmp_path: Path) -> None:
    """V9: the head goes on before its successor acknowledges; every response comes, in order."""
    rig = Rig(tmp_path)
    a, _, c = await chain_of(rig, 3)
    rig.net.delay_turns = 20
    acknowledged: list[int] = []
    futures = [a.append(b"%d" % number) for number in range(500)]
    for future in futures:
        future.add_done_callback(lambda done: acknowledged.append(done.result()))
    assert c.partition.log.end_offset == 0
    await asyncio.wait_for(asyncio.gather(*futures), 5)
    assert acknowledged == list(range(500))
    await rig.settled()
    rig.check_identical()


@looped
async def test_writes_of_one_turn_are_sent_and_acknowledged_together(tmp_path: Path) -> None:
    """V9: broker.replication.D1; acks are cumulative: a hundred batches need fewer frames."""
    rig = Rig(tmp_path)
    a, b, c = await chain_of(rig, 3)
    for node in (a, b, c):
        node.peers.frames.clear()
    await asyncio.gather(*(a.append(b"x") for _ in range(100)))
    assert len(a.peers.frames) <= 4
    assert len(c.peers.frames) <= 4


@looped
async def test_a_slow_link_bounds_what_is_on_its_way(tmp_path: Path) -> None:
    """V9: broker.replication.D5; at most a window, and no more than the link takes."""
    rig = Rig(tmp_path, window_size=4096)
    a, b, _ = await chain_of(rig, 3)
    rig.net.delay_turns = 5
    a.peers.backlog_max = b.peers.backlog_max = 2000
    futures = [a.append(bytes(500)) for _ in range(100)]
    most = 0
    while not all(future.done() for future in futures):
        await asyncio.sleep(0)
        most = max(most, a.peers.queued.get(b.node_id, 0))
        if not most % 7:
            rig.clock.advance_ms(1)
    assert most <= 4096 + 1000
    await rig.settled()
    rig.check_identical()


@pytest.mark.parametrize("config", [LogConfig(), SMALL, DURABLE], ids=["plain", "small", "durable"])
@looped
async def test_segments_and_checkpoints_are_copied(tmp_path: Path, config: LogConfig) -> None:
    """V7, V17: replicas roll where the head does; with flush.messages=1 all are flushed first."""
    rig = Rig(tmp_path, config=config)
    nodes = await chain_of(rig, 3)
    futures = [nodes[0].append(b"%d" % number, bytes(100)) for number in range(50)]
    while not all(future.done() for future in futures):
        await asyncio.sleep(0.001)
        await rig.pass_time()
    if config is DURABLE:
        assert all(node.partition.log.flusher.flushed_offset == 100 for node in nodes)
    await rig.settled()
    rig.check_identical()
    assert (len(nodes[0].files()) > 3) == (config is SMALL)


@pytest.mark.parametrize("killed", [1, 2, 3])
@looped
async def test_a_chain_goes_on_without_a_killed_node(tmp_path: Path, killed: int) -> None:
    """V16, V21: shortened under a new epoch; what was acknowledged is there; the node rejoins."""
    rig = Rig(tmp_path, config=SMALL)
    nodes = await chain_of(rig, 3)
    kept = [b"%d" % number for number in range(20)]
    for value in kept:
        await nodes[0].produce(value)
    in_flight = nodes[0].append(b"in flight")
    victim = nodes[killed - 1]
    victim.crash()
    left = [node for node in nodes if node is not victim]
    rig.configure(serving=[node.node_id for node in left], offline=[killed])
    await rig.leads(left[0])
    await left[0].produce(b"after")
    if killed != 1:
        assert await in_flight == 20
        kept = [*kept, b"in flight"]
    await rig.settled(*left)
    found = left[0].values()
    assert [value for value in found if value != b"in flight" or value in kept] == [*kept, b"after"]
    again = rig.restart(victim)
    rig.configure(serving=[node.node_id for node in left], syncing=[killed], new_epoch=False)
    await rig.until(lambda: (killed, rig.version) in rig.in_sync)
    rig.configure(serving=[*(node.node_id for node in left), killed])
    await rig.leads(left[0])
    await left[0].produce(b"all again")
    await rig.settled()
    assert again.values()[-2:] == [b"after", b"all again"]
    rig.check_identical()


@looped
async def test_an_emptied_disk_is_filled_again(tmp_path: Path) -> None:
    """V16: a node comes back with nothing, catches up while writes go on, and ends identical."""
    rig = Rig(tmp_path, config=SMALL)
    a, b, _c = await chain_of(rig, 3)
    for number in range(60):
        await a.produce(b"%d" % number, bytes(100))
    b.crash()
    rig.configure(serving=[1, 3], offline=[2])
    await rig.leads(a)
    shutil.rmtree(tmp_path / "n2")
    b = rig.restart(b)
    assert b.log_end == 0
    rig.configure(serving=[1, 3], syncing=[2], new_epoch=False)
    for number in range(20):
        await a.produce(b"meanwhile %d" % number)
    await rig.until(lambda: (2, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 3, 2])
    await rig.leads(a)
    await rig.settled()
    assert len(b.values()) == 140
    rig.check_identical()


@looped
async def test_a_chain_is_extended_under_load(tmp_path: Path) -> None:
    """V7: the new node is sent everything while writes go on, and becomes the tail."""
    rig = Rig(tmp_path, config=SMALL)
    a, b = await chain_of(rig, 2)
    for number in range(30):
        await a.produce(b"%d" % number, bytes(100))
    c = rig.add()
    rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
    futures = [a.append(b"load %d" % number, bytes(50)) for number in range(30)]
    await rig.until(lambda: (3, rig.version) in rig.in_sync)
    await asyncio.wait_for(asyncio.gather(*futures), 5)
    assert not c.partition.is_serving
    replica_set = rig.configure(serving=[1, 2, 3])
    await rig.leads(a)
    await a.produce(b"last")
    await rig.settled()
    assert replica_set.tail == 3
    assert c.partition.is_serving
    assert c.values() == b.values()
    rig.check_identical()


@looped
async def test_after_a_report_nothing_is_acknowledged_without_the_new_node(tmp_path: Path) -> None:
    """V7, V14: it may be the only one left a moment after it was promoted."""
    rig = Rig(tmp_path)
    a, _ = await chain_of(rig, 2)
    rig.add()
    rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
    await rig.until(lambda: (3, rig.version) in rig.in_sync)
    rig.net.cut(2, 3)
    waiting = a.append(b"x")
    await rig.pass_time(20)
    assert not waiting.done()
    rig.configure(serving=[1, 2], offline=[3], new_epoch=False)
    assert await asyncio.wait_for(waiting, 5) == 0


@looped
async def test_a_divergent_tail_is_cut_and_kept_aside(tmp_path: Path) -> None:
    """V14, V15: a head that was cut off wrote what nobody has; its epoch is over."""
    rig = Rig(tmp_path)
    a, b, _c = await chain_of(rig, 3)
    await a.produce(b"kept")
    rig.net.cut(1, 2)
    rig.net.cut(1, 3)
    lost = a.append(b"lost")
    rig.configure(serving=[2, 3], offline=[1], to=[2, 3])
    await rig.leads(b)
    await b.produce(b"instead")
    rig.net.heal()
    rig.configure(serving=[2, 3], syncing=[1], new_epoch=False)
    with pytest.raises(NotLeader):
        await asyncio.wait_for(lost, 5)
    await rig.until(lambda: (1, rig.version) in rig.in_sync)
    rig.configure(serving=[2, 3, 1])
    await rig.leads(b)
    await rig.settled()
    assert a.values() == [b"kept", b"instead"]
    rig.check_identical()
    assert list((tmp_path / "n1").glob("t-0.*/*.cut-*"))
    assert a.leads[-1][0] == "ended"


@looped
async def test_a_deposed_head_hears_of_it_from_its_successor(tmp_path: Path) -> None:
    """V15: messages of an older epoch are refused; their sender stops by itself."""
    rig = Rig(tmp_path)
    a, b, _ = await chain_of(rig, 3)
    rig.configure(serving=[2, 3], offline=[1], to=[2, 3])
    await rig.leads(b)
    lost = a.append(b"lost")
    await rig.turns(20)
    assert not a.partition.is_serving
    with pytest.raises(NotLeader):
        a.append(b"more")
    rig.configure(serving=[2, 3], offline=[1], new_epoch=False)
    with pytest.raises(NotLeader):
        await asyncio.wait_for(lost, 5)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
@looped
async def test_all_nodes_go_down_and_come_back(tmp_path: Path, order: tuple[int, ...]) -> None:
    """V14: the longest log wins, on whichever node; nothing acknowledged is lost."""
    rig = Rig(tmp_path, config=SMALL)
    nodes = await chain_of(rig, 3)
    for number in range(20):
        await nodes[0].produce(b"%d" % number, bytes(50))
    rig.net.cut(2, 3)
    nodes[0].append(b"not acknowledged").add_done_callback(lambda done: done.exception())
    await rig.turns(20)
    for node in nodes:
        node.crash()
    rig.net.cuts.clear()
    for number in order:
        rig.restart(nodes[number - 1])
    a, b, c = (rig.members[node.node_id] for node in nodes)
    # the old head has the longest log, and is the last of the new chain
    rig.configure(serving=[3, 2, 1])
    await rig.leads(c)
    await c.produce(b"goes on")
    await rig.settled()
    values = a.values()
    assert len(values) == 42
    assert values[-2:] == [b"not acknowledged", b"goes on"]
    assert b.values() == c.values() == values
    rig.check_identical()


@looped
async def test_writes_need_enough_nodes(tmp_path: Path) -> None:
    """V21: below min.insync.replicas acks=all is refused, acks=1 is not; what was in flight is
    told that it may be kept.
    """
    rig = Rig(tmp_path, min_insync=2)
    a, b, _ = await chain_of(rig, 2) + [None]
    rig.net.cut(1, 2)
    in_flight = a.append(b"in flight")
    b.crash()
    rig.configure(serving=[1], offline=[2])
    with pytest.raises(RequestError) as after:
        await asyncio.wait_for(in_flight, 5)
    assert after.value.code == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    with pytest.raises(RequestError) as refused:
        a.append(b"x")
    assert refused.value.code == Code.NOT_ENOUGH_REPLICAS
    assert await a.produce(b"x", acks=1) == 1


@looped
async def test_by_default_any_one_node_may_fail(tmp_path: Path) -> None:
    """V21: without min.insync.replicas writes go on with all replicas but one, and not with less;
    a node that is back and catches up does not lower the number.
    """
    rig = Rig(tmp_path, min_insync=None)
    a, b, c = await chain_of(rig, 3)
    assert await a.produce(b"all") == 0
    c.crash()
    rig.configure(serving=[1, 2], offline=[3])
    await rig.leads(a)
    assert await a.produce(b"two") == 1
    b.crash()
    for states in ({"offline": [2, 3]}, {"syncing": [3], "offline": [2]}):
        rig.configure(serving=[1], to=[1], **states)
        await rig.leads(a)
        with pytest.raises(RequestError) as refused:
            a.append(b"one")
        assert refused.value.code == Code.NOT_ENOUGH_REPLICAS
        assert "1 of 3 replicas is in sync, and writes need 2" in str(refused.value)
    assert await a.produce(b"acks=1", acks=1) == 2


@looped
async def test_with_the_strict_rule_every_node_must_serve(tmp_path: Path) -> None:
    """V5: with min.insync.replicas=0 any write waits until the chain is whole again."""
    rig = Rig(tmp_path, min_insync=0)
    a, b, _ = await chain_of(rig, 2) + [None]
    assert await a.produce(b"x") == 0
    b.crash()
    rig.configure(serving=[1], offline=[2])
    for acks in (0, 1, -1):
        with pytest.raises(RequestError) as refused:
            a.append(b"y", acks=acks)
        assert refused.value.code == Code.NOT_ENOUGH_REPLICAS
    assert a.values() == [b"x"]
    rig.restart(b)
    rig.configure(serving=[1], syncing=[2], new_epoch=False)
    await rig.until(lambda: (2, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    assert await a.produce(b"y") == 1


@pytest.mark.parametrize("min_insync", [0, None])
@looped
async def test_a_newcomer_holds_up_nobody(tmp_path: Path, min_insync: int | None) -> None:
    """V7: while a chain is extended it is as whole as before, so writes go on."""
    rig = Rig(tmp_path, min_insync=min_insync)
    a, *_ = await chain_of(rig, 2)
    rig.add()
    rig.net.cut(2, 3)
    rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
    assert await a.produce(b"x") == 0
    rig.net.heal()
    await rig.until(lambda: (3, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(a)
    assert await a.produce(b"y") == 1


@looped
async def test_without_a_lease_nothing_is_written(tmp_path: Path) -> None:
    """V15: a head that has not heard of the controller for too long stops by itself."""
    rig = Rig(tmp_path)
    a, *_ = await chain_of(rig, 3)
    a.leased.lease_until = rig.clock.monotonic() + 1
    assert await a.produce(b"x") == 0
    rig.clock.advance_ms(1000)
    with pytest.raises(NotLeader):
        a.append(b"y")
    assert not a.partition.has_lease
    assert a.values() == [b"x"]
    a.leased.lease_until = rig.clock.monotonic() + 1
    assert await a.produce(b"y") == 1


@looped
async def test_a_wait_for_other_nodes_ends(tmp_path: Path) -> None:
    """V12: after the request's timeout the producer hears REQUEST_TIMED_OUT."""
    rig = Rig(tmp_path)
    a, *_ = await chain_of(rig, 2)
    rig.net.cut(1, 2)
    waiting = a.append(b"x")
    await rig.pass_time(299)
    assert not waiting.done()
    await rig.pass_time(3)
    with pytest.raises(QuipuError) as late:
        await waiting
    assert late.value.code == Code.REQUEST_TIMED_OUT


@looped
async def test_lost_messages_are_sent_again(tmp_path: Path) -> None:
    """V10, V11: broker.replication.D2; one frame in three is lost; all arrives, in order."""
    rig = Rig(tmp_path)
    a, *_ = await chain_of(rig, 3)
    rng = SeededRng(3)
    rig.net.lossy = lambda _from, _to, _body: rng.random() < 0.3
    futures = []
    for number in range(30):
        futures.append(a.append(b"%d" % number))
        await rig.turns(3)
    await rig.until(lambda: all(future.done() for future in futures), ticks=200)
    rig.net.lossy = lambda _from, _to, _body: False
    await rig.settled()
    rig.check_identical()


@looped
async def test_a_damaged_message_harms_nothing(tmp_path: Path) -> None:
    """V11: bytes that were changed on the way are refused as a whole, and sent again."""
    rig = Rig(tmp_path)
    a, b, c = await chain_of(rig, 3)
    await a.produce(b"good")
    for junk in (b"", b"\xff" * 40, b"\x03" + bytes(60)):
        rig.net.peers[b.node_id].handler(a.node_id, memoryview(junk))
    assert await a.produce(b"also good") == 1
    await rig.settled()
    assert c.values() == [b"good", b"also good"]


@looped
async def test_a_quiet_chain_costs_nothing(tmp_path: Path) -> None:
    """V9: broker.replication.D3; once every member has everything, no more is sent."""
    rig = Rig(tmp_path)
    nodes = await chain_of(rig, 3)
    await nodes[0].produce(b"x")
    await rig.pass_time(5)
    for node in nodes:
        node.peers.frames.clear()
    await rig.pass_time(10)
    assert [node.peers.frames for node in nodes] == [[], [], []]


@looped
async def test_leading_is_told(tmp_path: Path) -> None:
    """V15: broker.replication.R3; listeners are notified when leading begins and ends."""
    rig = Rig(tmp_path)
    a, b, _ = await chain_of(rig, 3)
    assert (a.leads, b.leads) == ([("began", 1)], [])
    a.crash()
    rig.configure(serving=[2, 3], offline=[1])
    await rig.leads(b)
    assert b.leads == [("began", 2)]
    assert rig.all_serve[-1] == rig.version
    rig.configure(serving=[3, 2], offline=[1])
    assert b.leads == [("began", 2), ("ended", 3)]
