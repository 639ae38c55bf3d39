"""A broker's group side on a log in memory, in virtual time, and clients that ask it in bytes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from uuid import UUID

from quipu.broker.coordinators.command_writer import CommandLog
from quipu.broker.coordinators.record_log import KeyedRecord
from quipu.broker.groups import Groups
from quipu.broker.groups.limits import GroupUsage
from quipu.broker.groups.registry import GroupRegistry, KnownTopics
from quipu.broker.groups.shard import GroupShard
from quipu.broker.handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
)
from quipu.broker.observing.stats import Stats
from quipu.broker.serving.context import Broker
from quipu.controller.topic_requests import NewTopic
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.partition_log import PartitionLog
from quipu.model.settings import BrokerSettings
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.runtime.clock import ManualClock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.rng import SeededRng
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest
from quipu.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from quipu.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from quipu.wire.schema import Request
from tests.broker.clusters import ABroker, MemoryLog, a_cluster, ask
from tests.broker.groups.conversation import subscription

SETTINGS = BrokerSettings(group_initial_rebalance_delay_ms=0)
LATEST = {8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 2, 47: 0}


class GroupMemoryLog(MemoryLog):
    """As a shard asks its log."""

    must_snapshot = False

    def size_of(self, command: Any) -> int:
        return command.size if isinstance(command, KeyedRecord) else len(command)

    async def load(self, apply: Callable[[Any], None]) -> None:
        self.replay(apply)

    def close(self) -> None:
        """What is written after that is a bug."""
        self.before_append = refuse


class LateLog(GroupMemoryLog):
    """Takes its time to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def load(self, apply: Callable[[Any], None]) -> None:
        await self.gate.wait()
        await super().load(apply)


async def refuse() -> None:
    raise AssertionError("written by one who does not lead")


@dataclass(kw_only=True)
class GroupBroker(ABroker):
    """As much of a broker as the handlers of groups use."""

    log: CommandLog[KeyedRecord] = field(default_factory=GroupMemoryLog)
    clock: ManualClock = field(default_factory=ManualClock)
    rng: SeededRng = field(default_factory=lambda: SeededRng(1))
    host: str = "kafka.test"
    port: int = 9092
    stats: Stats = field(default_factory=Stats)
    groups: Groups = field(init=False)

    @property
    def node_id(self) -> NodeId:
        return self.cluster.node_id

    @property
    def shard(self) -> GroupShard:
        """The only one there is."""
        return self.groups.shards._led[0].shard

    async def start(self) -> None:
        """Start, or start again after a crash, with what the log holds."""
        await self.cluster.ensure_internal_topic(CONSUMER_OFFSETS, 1)
        self.stats = Stats()
        self.groups = Groups(cast("Broker", self), lambda _: self.log)
        self.groups.leading_began(cast("PartitionLog", SimpleNamespace(
            topic_partition=TopicPartition(CONSUMER_OFFSETS, 0), has_lease=True)))
        await self.groups.start()

    async def restart(self) -> None:
        """Crash: nothing is stopped, no request gets a response; only the log is left."""
        for timer in self.shard._timers.values():
            timer.cancel()
        await self.start()

    async def ask(self, handler: ModuleType, request: Request, version: int | None = None) -> Any:
        latest = LATEST[request.KEY]
        return await ask(self, handler, request, latest if version is None else version)

    async def pass_ms(self, passed_ms: int) -> None:
        """Let time pass; groups are looked at as their timers would do."""
        shard = self.shard
        end = shard.now() + passed_ms
        while due := self._due(end):
            deadline, group_id = min(due)
            self.clock.advance_ms(max(0, deadline - shard.now()))
            shard.tick(shard.registry.entries[group_id])
            await settle()
        self.clock.advance_ms(end - shard.now())

    def _due(self, end: int) -> list[tuple[int, str]]:
        deadlines = [
            (entry.group.deadline(), name) for name, entry in self.shard.registry.entries.items()]
        return [(at, name) for at, name in deadlines if at is not None and at <= end]


async def a_group_broker(
    *topics: str, settings: BrokerSettings = SETTINGS, log: CommandLog[KeyedRecord] | None = None
) -> GroupBroker:
    """A broker with topics of two partitions each."""
    broker = GroupBroker(cluster=await a_cluster(settings), log=log or GroupMemoryLog())
    broker.cluster.follow(broker.partitions)
    await broker.cluster.controller.create_topics([NewTopic(name, 2) for name in topics or ("t",)])
    await broker.start()
    return broker


async def settle() -> None:
    """Let everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def begun(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Start something that has to wait."""
    task = asyncio.get_running_loop().create_task(work)
    await settle()
    return task


@dataclass
class Client:
    """A consumer that remembers the responses that it got."""

    broker: GroupBroker
    group_id: str = "g"
    instance_id: str | None = None
    topics: Sequence[str] = ("t",)
    member_id: str = ""
    generation: int = -1
    leader: bool = False
    members: list[str] = field(default_factory=list)

    async def join(self) -> int:
        """Join, again with the new id if that is required; returns the code."""
        request = JoinGroupRequest(
            group_id=self.group_id, session_timeout=10_000, rebalance_timeout=30_000,
            member_id=self.member_id, group_instance_id=self.instance_id,
            protocol_type="consumer", protocols=[JoinGroupRequestProtocol(
                name="range", metadata=subscription(list(self.topics)))])
        response = await self.broker.ask(k11_join_group, request)
        if response.error_code == 79:
            self.member_id = request.member_id = response.member_id
            response = await self.broker.ask(k11_join_group, request)
        if response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.members = [member.member_id for member in response.members]
            self.leader = response.leader == response.member_id
        return int(response.error_code)

    async def sync(self) -> Any:
        """Sync; a leader assigns every member its own name."""
        assignments = [
            SyncGroupRequestAssignment(member_id=name, assignment=name.encode())
            for name in self.members]
        return await self.broker.ask(k14_sync_group, SyncGroupRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.instance_id, protocol_type="consumer", protocol_name="range",
            assignments=assignments))

    async def enter(self) -> None:
        """Join and sync, alone."""
        assert await self.join() == 0
        assert (await self.sync()).error_code == 0

    async def heartbeat(self) -> int:
        response = await self.broker.ask(k12_heartbeat, HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.instance_id))
        return int(response.error_code)

    async def leave(self) -> int:
        response = await self.broker.ask(k13_leave_group, LeaveGroupRequest(
            group_id=self.group_id, members=[MemberIdentity(
                member_id=self.member_id, group_instance_id=self.instance_id)]))
        return int(response.error_code or response.members[0].error_code)

    async def commit(
        self, offset: int, *, topic: str = "t", partition: int = 0, metadata: str | None = None
    ) -> int:
        response = await self.broker.ask(k08_offset_commit, OffsetCommitRequest(
            group_id=self.group_id, member_id=self.member_id,
            group_instance_id=self.instance_id, generation_id_or_member_epoch=self.generation,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=3,
                committed_metadata=metadata)])]))
        return int(response.topics[0].partitions[0].error_code)

    async def committed(self, topic: str = "t", partition: int = 0) -> int:
        response = await self.broker.ask(k09_offset_fetch, OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=[
                OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])])]))
        found = response.groups[0].topics[0].partitions[0]
        assert found.error_code == 0
        return int(found.committed_offset)


async def two_members(broker: GroupBroker, group_id: str = "g") -> tuple[Client, Client]:
    """A stable group of two; the first one leads."""
    first, second = Client(broker, group_id), Client(broker, group_id)
    await first.enter()
    joining = await begun(second.join())
    assert await first.heartbeat() == 27
    assert await first.join() == 0
    assert await joining == 0
    syncing = await begun(second.sync())
    await first.sync()
    assert (await syncing).assignment == second.member_id.encode()
    return first, second


def known(**topic_ids: UUID) -> KnownTopics:
    """Topics by name, with these ids."""
    topics = [SimpleNamespace(name=name, topic_id=each) for name, each in topic_ids.items()]
    return cast("KnownTopics", SimpleNamespace(
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics}))


def a_usage(settings: BrokerSettings = SETTINGS) -> GroupUsage:
    """Of a node that has no groups yet."""
    return GroupUsage(settings, Stats(), LimitedLog(logging.getLogger(__name__)))


def kept(registry: GroupRegistry) -> dict[str, tuple[Any, Any]]:
    """All that has to survive, to compare."""
    return {
        name: (entry.group.snapshot(), dict(entry.offsets))
        for name, entry in sorted(registry.entries.items())}
