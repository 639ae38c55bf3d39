"""Limits on the traffic of replicas that catch up, in virtual time."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.broker.replication.throttling import (
    UNLIMITED,
    PacedTraffic,
    ReplicationThrottle,
    part_size,
)
from quipu.model.ids import NodeId
from quipu.model.throttle_settings import ALL, ThrottledReplicas
from quipu.runtime.disks.sim_disk import SimDisk
from tests.broker.replication.rig import TOPIC_ID, ANode, Rig
from tests.looped import LoopClock, timeless

RATE = 200_000
BATCH = b"x" * 4000
BATCHES = 500  # two megabytes: ten seconds at RATE


class SetRates:
    """Rates that a test changes."""

    def __init__(self, leader: int = UNLIMITED, follower: int = UNLIMITED) -> None:
        self.leader, self.follower = leader, follower

    def leader_rate(self) -> int:
        return self.leader

    def follower_rate(self, node_id: NodeId) -> int:
        del node_id
        return self.follower


def throttled(leaders: str = "", followers: str = "") -> ThrottledReplicas:
    return ThrottledReplicas(frozenset(leaders.split(",")) - {""},
                             frozenset(followers.split(",")) - {""})


async def ticking(rig: Rig) -> None:
    """Tick all nodes, ten times a second of the loop's time."""
    while True:
        await asyncio.sleep(0.1)
        for node in rig.members.values():
            node.replication.tick()


async def filled(tmp_path: Path, rates: SetRates, replicas: ThrottledReplicas) -> Rig:
    """Two nodes that serve two megabytes, and a third one that has nothing of them."""
    rig = Rig(tmp_path, rates=rates, clock=LoopClock(), window_size=8 << 20, disk=SimDisk)
    rig.nodes(3)
    first, second = rig.members[NodeId(1)], rig.members[NodeId(2)]
    for node in rig.members.values():
        node.replication.throttle.configure(TOPIC_ID.bytes, replicas)
    rig.configure(serving=[1, 2], offline=[3])
    rig.ticks = asyncio.create_task(ticking(rig))  # type: ignore[attr-defined]
    await seconds_until(lambda: first.partition.is_leader)
    for _ in range(BATCHES):
        first.append(BATCH)
        await asyncio.sleep(0)
    await seconds_until(lambda: second.partition.high_watermark == BATCHES)
    return rig


async def seconds_until(condition: object, limit: float = 100.0) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.005)
        assert loop.time() < begun + limit, "it did not come to be"
    return loop.time() - begun


def has_all(node: ANode) -> bool:
    return node.partition.log.end_offset >= BATCHES


@pytest.mark.parametrize(("rates", "replicas"), [
    (SetRates(leader=RATE), throttled(leaders="0:1,0:2")),
    (SetRates(follower=RATE), throttled(followers="0:3")),
    (SetRates(leader=RATE, follower=10 * RATE), throttled(ALL, ALL)),
    (SetRates(leader=10 * RATE, follower=RATE), throttled(ALL, ALL)),
], ids=["leader", "follower", "both, leader is less", "both, follower is less"])
def test_a_replica_catches_up_at_the_rate(
    tmp_path: Path, rates: SetRates, replicas: ThrottledReplicas
) -> None:
    """K5: two megabytes at a fifth of a megabyte per second take ten seconds, within a tenth."""

    @timeless
    async def story() -> None:
        rig = await filled(tmp_path, rates, replicas)
        rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
        seconds = await seconds_until(lambda: has_all(rig.members[NodeId(3)]))
        expected = BATCHES * len(BATCH) / RATE
        assert expected * 0.9 < seconds < expected * 1.1
        logs = [rig.members[NodeId(each)].partition.log for each in (1, 3)]
        assert logs[0].log_end == logs[1].log_end

    story()


@pytest.mark.parametrize(("rates", "replicas"), [
    (SetRates(leader=RATE, follower=RATE), throttled()),
    (SetRates(leader=RATE, follower=RATE), throttled("0:3,1:2", "0:2,1:3")),
    (SetRates(), throttled(ALL, ALL)),
], ids=["no replica is named", "others are named", "there is no rate"])
def test_what_is_not_named_is_not_limited(
    tmp_path: Path, rates: SetRates, replicas: ThrottledReplicas
) -> None:
    """K5: node 2 sends, node 3 receives, of partition 0; nothing of that is limited here."""

    @timeless
    async def story() -> None:
        rig = await filled(tmp_path, rates, replicas)
        rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
        assert await seconds_until(lambda: has_all(rig.members[NodeId(3)])) < 1

    story()


def test_members_in_sync_are_never_limited(tmp_path: Path) -> None:
    """K5, broker.replication.L1: with a rate of one byte per second, writes are acknowledged as if
    there were none, and the member that has caught up is in sync without delay.
    """

    @timeless
    async def story() -> None:
        rates = SetRates()
        rig = await filled(tmp_path, rates, throttled(ALL, ALL))
        rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
        await seconds_until(lambda: (NodeId(3), rig.version) in rig.in_sync)
        rates.leader = rates.follower = 1
        loop, head = asyncio.get_running_loop(), rig.members[NodeId(1)]
        for _ in range(100):  # in sync, and not serving yet
            begun = loop.time()
            await head.append(BATCH)
            assert loop.time() - begun < 0.1
        rig.configure(serving=[1, 2, 3])
        await seconds_until(lambda: head.partition.is_leader)
        for _ in range(100):
            begun = loop.time()
            await head.append(BATCH)
            assert loop.time() - begun < 0.1

    story()


@pytest.mark.parametrize("end", ["rate", "replicas"])
def test_a_throttle_can_be_lifted(tmp_path: Path, end: str) -> None:
    """K5, broker.replication.L2: a rate of 0 stops everything; without it, it goes on at once."""

    @timeless
    async def story() -> None:
        rates = SetRates(leader=0, follower=0)
        rig = await filled(tmp_path, rates, throttled(ALL, ALL))
        rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
        await asyncio.sleep(30)
        assert rig.members[NodeId(3)].partition.log.end_offset == 0
        if end == "rate":
            rates.leader = rates.follower = UNLIMITED
        else:
            for node in rig.members.values():
                node.replication.throttle.configure(TOPIC_ID.bytes, throttled())
        assert await seconds_until(lambda: has_all(rig.members[NodeId(3)])) < 2

    story()


@timeless
async def test_partitions_share_a_limit_in_turns() -> None:
    """K5, broker.replication.L3: ten partitions share the rate of their node, each its part."""
    loop = asyncio.get_running_loop()
    throttle = ReplicationThrottle(NodeId(1), loop.time, SetRates(leader=RATE))
    throttle.configure(b"t", throttled(leaders=ALL))
    sent = dict.fromkeys(range(10), 0)

    def send(partition: int) -> None:
        key = b"t", partition
        room = throttle.room_to_send(key, NodeId(2), 1 << 20, lambda: send(partition))
        if room:
            throttle.sent(key, NodeId(2), room)
            sent[partition] += room
            loop.call_soon(send, partition)

    for partition in sent:
        send(partition)
    await asyncio.sleep(20)
    assert sum(sent.values()) == pytest.approx(20 * RATE, rel=0.05)
    assert max(sent.values()) - min(sent.values()) <= 2 * part_size(RATE)
    throttle.stop()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400_000), st.floats(0, 1)),
                max_size=40), st.integers(1, 2_000_000))
def test_traffic_keeps_to_the_limit(
    parts: list[tuple[int, int, float]], rate: int
) -> None:
    """K5: whoever asks when, and however large the parts: at most the rate, a burst, one part."""

    @timeless
    async def story() -> None:
        loop = asyncio.get_running_loop()
        paced = PacedTraffic(loop.time)
        begun: list[tuple[float, int]] = []
        due = {who: [size for each, size, _ in parts if each == who] for who in range(6)}

        def ask(who: int) -> None:
            if due[who] and paced.admit(rate, who, lambda: ask(who)):
                size = due[who].pop(0)
                paced.take(rate, size)
                begun.append((loop.time(), size))

        for who, _, pause in parts:
            await asyncio.sleep(pause)
            ask(who)
        for first, (start, _) in enumerate(begun):
            total = 0
            for time, size in begun[first:]:
                assert total <= part_size(rate) + (time - start) * rate + 1
                total += size
        paced.stop()

    story()
