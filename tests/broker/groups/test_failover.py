"""Coordinators that come and go: real chains of three nodes, with the groups on top of them."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from quipu.broker.coordinators.keys import partition_of_key
from quipu.broker.coordinators.record_log import KeyedRecord, PartitionRecordLog
from quipu.broker.groups import Groups
from quipu.broker.handlers import k09_offset_fetch, k10_find_coordinator, k16_list_groups
from quipu.broker.serving.context import Broker
from quipu.controller.topic_requests import NewTopic
from quipu.model.batch_types import GROUP
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import TopicPartition
from quipu.model.partition_log import PartitionLog
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k16_list_groups import ListGroupsRequest
from tests.broker.clusters import a_cluster
from tests.broker.groups.brokers import (
    SETTINGS,
    Client,
    GroupBroker,
    GroupMemoryLog,
    LateLog,
    a_group_broker,
    begun,
    settle,
    two_members,
)
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped

PARTITION = TopicPartition(CONSUMER_OFFSETS, 0)


@dataclass(kw_only=True)
class ChainedBroker(GroupBroker):
    """The group side of one node of a rig."""

    node: ANode

    async def start(self) -> None:
        await self.cluster.ensure_internal_topic(CONSUMER_OFFSETS, 1)
        self.groups = Groups(cast("Broker", self))
        self.node.partition.topic_partition = PARTITION
        self.node.replication.watch(self.groups)
        await self.groups.start()

    @property
    def is_served(self) -> bool:
        return self.groups.shards.shard_of("g")[1] is Code.NONE


async def on_top(node: ANode) -> ChainedBroker:
    """Topic ids are the same on every node: they come from the same seed, in the same order."""
    alike = await a_group_broker()
    broker = ChainedBroker(cluster=alike.cluster, clock=node.rig.clock, node=node)
    await alike.groups.stop()
    await broker.start()
    return broker


async def three(path: Path) -> tuple[Rig, list[ChainedBroker]]:
    rig = Rig(path)
    brokers = [await on_top(node) for node in rig.nodes(3)]
    rig.configure(serving=[1, 2, 3])
    await rig.until(lambda: brokers[0].is_served)
    return rig, brokers


async def ticked(rig: Rig, work: "asyncio.Task[object]") -> object:
    """Let time pass until `work` is done."""
    await rig.until(work.done)
    return work.result()


def move(client: Client, broker: GroupBroker) -> None:
    client.broker = broker


@looped
async def test_a_stable_group_survives_its_coordinators_death(tmp_path: Path) -> None:
    """K3, V16: members keep generation and assignment, offsets are those that were acknowledged."""
    rig, (a, b, _) = await three(tmp_path)
    first, second = await two_members(a)
    assert await first.commit(42) == Code.NONE
    assert await second.commit(7, partition=1) == Code.NONE
    generation = first.generation
    a.node.crash()
    rig.configure(serving=[2, 3], offline=[1])
    await rig.until(lambda: b.is_served)

    for client in (first, second):
        move(client, b)
        assert await client.heartbeat() == Code.NONE
    assert (await second.sync()).assignment == second.member_id.encode()
    assert (await first.committed(), await first.committed(partition=1)) == (42, 7)
    assert await first.commit(43) == Code.NONE
    assert await first.committed() == 43
    assert b.groups.all()[0].generation == generation
    await b.groups.stop()


@looped
async def test_a_deposed_coordinator_sends_everybody_away(tmp_path: Path) -> None:
    """K3, V15: every request, waiting ones too, gets NOT_COORDINATOR."""
    rig, (a, b, _) = await three(tmp_path)
    first, _ = await two_members(a)
    assert await first.commit(42) == Code.NONE
    joining = await begun(first.join())  # the leader wants a rebalance, and waits for the other
    rig.configure(serving=[2, 3], offline=[1])
    await rig.until(lambda: b.is_served)

    assert await joining == Code.NOT_COORDINATOR
    assert await first.heartbeat() == Code.NOT_COORDINATOR
    assert await first.join() == Code.NOT_COORDINATOR
    assert (await first.sync()).error_code == Code.NOT_COORDINATOR
    assert await first.leave() == Code.NOT_COORDINATOR
    assert await first.commit(1) == Code.NOT_COORDINATOR
    response = await a.ask(k09_offset_fetch, OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]))
    assert response.groups[0].error_code == Code.NOT_COORDINATOR
    assert (await a.ask(k16_list_groups, ListGroupsRequest())).groups == []
    assert len((await b.ask(k16_list_groups, ListGroupsRequest())).groups) == 1
    move(first, b)
    assert await first.committed() == 42


@looped
async def test_a_coordinator_whose_lease_has_ended_says_nothing(tmp_path: Path) -> None:
    """V15: another may have taken over; what this one knows may be old."""
    rig, (a, *_) = await three(tmp_path)
    client = Client(a)
    assert await client.commit(1) == Code.NONE
    a.node.leased.lease_until = rig.clock.monotonic() - 1
    assert await client.commit(2) == Code.NOT_COORDINATOR
    assert await client.heartbeat() == Code.NOT_COORDINATOR
    assert a.groups.all() == []
    response = await a.ask(k10_find_coordinator, FindCoordinatorRequest(coordinator_keys=["g"]))
    assert response.coordinators[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
    a.node.leased.lease_until = rig.clock.monotonic() + 100
    assert await client.committed() == 1


@looped
async def test_a_commit_under_way_is_not_answered_well_by_the_deposed(tmp_path: Path) -> None:
    """K3, V15: it never reached the tail, so it may be lost, and its sender gets an error."""
    rig, (a, b, _) = await three(tmp_path)
    client = Client(a)
    assert await client.commit(1) == Code.NONE
    rig.net.cut(1, 2)
    committing = await begun(client.commit(2))
    await rig.pass_time(3)
    assert not committing.done()
    rig.configure(serving=[2, 3], offline=[1])
    assert await ticked(rig, committing) == Code.NOT_COORDINATOR
    await rig.until(lambda: b.is_served)
    move(client, b)
    assert await client.committed() == 1
    assert await client.commit(3) == Code.NONE


@looped
async def test_a_head_that_stays_goes_on_with_its_groups(tmp_path: Path) -> None:
    """K3, V21: the chain is shortened under a new epoch; no client looks up its coordinator."""
    rig, (a, _, c) = await three(tmp_path)
    first, second = await two_members(a)
    shard = a.shard
    c.node.crash()
    committing = await begun(first.commit(5))
    rig.configure(serving=[1, 2], offline=[3])
    assert await ticked(rig, committing) == Code.NONE
    assert a.shard is shard
    assert [await first.heartbeat(), await second.heartbeat()] == [Code.NONE, Code.NONE]
    assert await first.commit(6) == Code.NONE


@looped
async def test_a_coordinator_that_returns_reads_what_others_wrote(tmp_path: Path) -> None:
    """K3, V16: leadership goes away and comes back; the shard is a new one."""
    rig, (a, b, _) = await three(tmp_path)
    client = Client(a)
    assert await client.commit(1) == Code.NONE
    rig.configure(serving=[2, 3], syncing=[1])
    await rig.until(lambda: b.is_served)
    move(client, b)
    assert await client.commit(2) == Code.NONE
    await rig.until(lambda: a.node.log_end == b.node.log_end)
    rig.configure(serving=[1, 2, 3])
    await rig.until(lambda: a.is_served)
    assert not b.is_served
    move(client, a)
    assert await client.committed() == 2
    assert await client.commit(3) == Code.NONE


@looped
async def test_who_has_no_say_any_more_writes_nothing(tmp_path: Path) -> None:
    """V15: a write of the last reign must not come in the next, though the node is the same."""
    rig, (a, *_) = await three(tmp_path)
    assert await Client(a).commit(1) == Code.NONE
    log = PartitionRecordLog(a.node.partition, GROUP, rig.clock)
    await log.load(lambda _: None)
    log.close()
    end = a.node.log_end
    late = KeyedRecord(b"key", b"late")
    with pytest.raises(QuipuError) as refused:
        await log.append([late])
    assert refused.value.code is Code.NOT_COORDINATOR
    with pytest.raises(QuipuError):
        await log.snapshot([late])
    assert a.node.log_end == end


@looped
async def test_groups_that_are_being_read_are_not_served_yet() -> None:
    """K3: COORDINATOR_LOAD_IN_PROGRESS for every request, then the members' full time."""
    broker = await a_group_broker()
    client = Client(broker)
    await client.enter()
    assert await client.commit(1) == Code.NONE
    late = LateLog()
    assert isinstance(broker.log, GroupMemoryLog)
    late.commands = broker.log.commands
    again = Groups(cast("Broker", broker), lambda _: late)
    again.leading_began(cast("PartitionLog", SimpleNamespace(
        topic_partition=PARTITION, has_lease=True)))
    broker.groups = again
    loading = Code.COORDINATOR_LOAD_IN_PROGRESS

    assert await client.heartbeat() == loading
    assert await client.commit(2) == loading
    assert await client.join() == loading
    assert (await broker.ask(k16_list_groups, ListGroupsRequest())).error_code == loading
    broker.clock.advance_ms(9_000)
    late.gate.set()
    await settle()
    assert await client.heartbeat() == Code.NONE
    assert await client.committed() == 1
    await broker.pass_ms(9_999)
    assert await client.heartbeat() == Code.NONE
    await again.stop()


@looped
async def test_who_joins_while_groups_are_read_waits_for_a_moment() -> None:
    """K3: a group's first member comes when its partition has just been made: that is no error."""
    broker = await a_group_broker()
    client = Client(broker)
    await client.enter()
    late = LateLog()
    assert isinstance(broker.log, GroupMemoryLog)
    late.commands = broker.log.commands
    broker.groups = again = Groups(cast("Broker", broker), lambda _: late)
    again.leading_began(cast("PartitionLog", SimpleNamespace(
        topic_partition=PARTITION, has_lease=True)))
    joining = await begun(client.join())
    assert not joining.done()
    late.gate.set()
    assert await joining == Code.NONE
    await again.stop()


@looped
async def test_a_shard_can_be_lost_while_it_is_read() -> None:
    """K3: nothing of it is served, and nothing goes on in the background."""
    broker = await a_group_broker()
    late = LateLog()
    groups = Groups(cast("Broker", broker), lambda _: late)
    partition = cast("PartitionLog", SimpleNamespace(topic_partition=PARTITION, has_lease=True))
    groups.leading_began(partition)
    shard = groups.shards._led[0].shard
    groups.leading_ended(partition)
    late.gate.set()
    await settle()
    assert groups.shards.shard_of("g") == (None, Code.NOT_COORDINATOR)
    assert shard.unavailable is Code.NOT_COORDINATOR
    groups.leading_ended(partition)
    groups.leading_began(cast("PartitionLog", SimpleNamespace(
        topic_partition=TopicPartition("orders", 0))))
    assert list(groups.shards) == []


@pytest.mark.parametrize(("group_id", "count", "want"), [
    ("", 50, 0), ("hello", 50, 22), ("Hello World!", 50, 47), ("polygenelubricants", 50, 0),
    ("grün", 1000, 949), ("\U0001d4b3", 1000, 318),
])
def test_a_group_falls_on_the_partition_that_kafka_would_choose(
    group_id: str, count: int, want: int
) -> None:
    """K3: tools that know Kafka's rule find the group where they look for it."""
    assert partition_of_key(group_id, count) == want


@looped
async def test_groups_are_spread_over_the_partitions_of_a_topic_made_when_needed() -> None:
    """K3: who leads a partition serves the groups that fall on it, and no others."""
    broker = GroupBroker(cluster=await a_cluster(SETTINGS))
    await broker.cluster.controller.create_topics([NewTopic("t", 2)])
    broker.groups = groups = Groups(cast("Broker", broker), lambda _: GroupMemoryLog())
    await groups.start()
    here = Client(broker, "here")
    assert await here.commit(1) == Code.NOT_COORDINATOR  # nobody has asked for a coordinator yet
    names = [f"group-{number}" for number in range(20)]
    response = await broker.ask(
        k10_find_coordinator, FindCoordinatorRequest(coordinator_keys=names))
    assert {found.node_id for found in response.coordinators} == {1}
    count = len(broker.cluster.state.topics[CONSUMER_OFFSETS].partitions)
    assert count == SETTINGS.offsets_topic_num_partitions == 4

    number = partition_of_key("here", count)
    groups.leading_began(cast("PartitionLog", SimpleNamespace(
        topic_partition=TopicPartition(CONSUMER_OFFSETS, number), has_lease=True)))
    await settle()
    assert await here.commit(1) == Code.NONE
    for name in names:
        code = await Client(broker, name).commit(1)
        is_here = partition_of_key(name, count) == number
        assert code == (Code.NONE if is_here else Code.NOT_COORDINATOR)
    await groups.stop()
    assert await here.commit(1) == Code.COORDINATOR_NOT_AVAILABLE
