"""All groups of this node: one shard per partition of `__consumer_offsets` that it leads.

A group belongs to the partition that its name falls on, and its coordinator is whoever leads that
partition.  The topic is created when somebody first looks for a coordinator.

Invariants
    Y1  a shard is here from the moment when this node leads its partition to the one when it does
        not; if it leads again, that is another shard, which reads the log anew
    Y2  nothing is told about groups by a node whose lease has ended: another may lead already
    Y3  a replica that does not lead drops what the leader's snapshots have made superfluous

Not here: what a shard does (shard.py), its log (shard_log.py), the messages (handlers/).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from quipu.broker.groups import offsets
from quipu.broker.groups.events import Heartbeat, Join, Joined, Leaver, Sync, Synced, Ticket
from quipu.broker.groups.group import Group
from quipu.broker.groups.group_log import CommandLog
from quipu.broker.groups.limits import GroupUsage
from quipu.broker.groups.registry import Committed, Entry, OffsetKey
from quipu.broker.groups.shard import Shard
from quipu.broker.groups.shard_log import LedPartition, ShardLog, in_turns
from quipu.model.batch_types import GROUP
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.runtime.spawn import spawn
from quipu.storage.state_log import StateLog

if TYPE_CHECKING:  # it holds the groups too
    from quipu.broker.context import Broker
    from quipu.broker.partition import Partition
    from quipu.controller.state import Topic

_log = logging.getLogger(__name__)

RECLAIM_SECONDS: Final = 10.0  # between two searches for groups that can go
RECLAIM_SHARE: Final = 16  # or one of so many of the groups that there may be is new since
LOAD_SECONDS_MAX: Final = 1.0  # that someone who looks for a coordinator, or joins, is kept waiting
# Nothing of the group log is deleted by age or size: snapshots keep it bounded.  It is written for
# as long as anybody serves: who reads what is left of a chain needs a group for that.
LOG_SETTINGS: Final = (("cleanup.policy", "compact"), ("min.insync.replicas", "1"))
_HASH_MASK: Final = 0xFFFF_FFFF

OpenLog = Callable[[LedPartition], CommandLog]


def shard_number(group_id: str, count_: int) -> int:
    """The partition of a group, as Kafka finds it: by Java's hash of its name."""
    code = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8) + units[position + 1]) & _HASH_MASK
    if code >= 1 << 31:
        code = 0 if code == 1 << 31 else (1 << 32) - code  # the least number has no opposite
    return code % count_


class Coordinator(NamedTuple):
    """Who coordinates a group."""

    node_id: NodeId
    host: str
    port: int


class _Led(NamedTuple):
    partition: LedPartition
    shard: Shard


class Groups:
    """All groups that this node coordinates; tells who coordinates the others."""

    def __init__(self, broker: "Broker", open_log: OpenLog | None = None) -> None:
        self._broker = broker
        self.usage = GroupUsage(broker.settings, broker.stats, broker.limited)
        self._reclaimed_at = -RECLAIM_SECONDS
        self._reclaimed_after = 0  # groups that had been created by then
        self._open_log = open_log or (lambda partition: ShardLog(partition, broker.clock))
        self._led: dict[int, _Led] = {}  # by partition
        self._tickets = count(1)
        self._is_stopped = False
        self._sweeper: asyncio.TimerHandle | None = None

    # -- life

    async def start(self) -> None:
        """Take up the groups of partitions that this node leads already."""
        self._broker.cluster.follow(self)
        self._sweep_later()
        for led in list(self._led.values()):
            await led.shard.loaded()

    async def stop(self) -> None:
        """Send everybody who waits to look for a coordinator, and finish writing."""
        self._is_stopped = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for led in list(self._led.values()):
            led.shard.end(Code.COORDINATOR_NOT_AVAILABLE)
        for led in list(self._led.values()):
            await led.shard.log.drained()

    # -- what the chains tell

    def leading_began(self, partition: LedPartition) -> None:
        """This node leads `partition`: if groups are in it, load them (Y1)."""
        topic, number = partition.topic_partition
        if topic != CONSUMER_OFFSETS or self._is_stopped:
            return
        assert number not in self._led, partition.topic_partition
        try:
            shard = Shard(self._broker, self._open_log(partition), self)
        except QuipuError as error:
            _log.error("%s: groups cannot be read: %s", partition.topic_partition, error)
            return
        self._led[number] = _Led(partition, shard)
        shard.start()

    def leading_ended(self, partition: LedPartition) -> None:
        """Another node leads it, or will."""
        topic, number = partition.topic_partition
        if topic == CONSUMER_OFFSETS and (led := self._led.pop(number, None)) is not None:
            led.shard.close()

    # -- what the cluster tells

    def on_topic_created(self, topic: "Topic") -> None:
        """Nothing has been committed yet."""

    def on_partitions_added(self, topic: "Topic", first_new: int) -> None:
        """Members see by themselves, and the leader asks for a rebalance."""

    def on_config_changed(self, topic: "Topic") -> None:
        """Groups have no use for a topic's settings."""

    def on_replicas_changed(self, topic: "Topic") -> None:
        """The chains tell what this node leads."""

    def on_brokers_changed(self) -> None:
        """Coordinators are looked up when somebody asks."""

    def on_topic_deleted(self, topic: "Topic") -> Iterator[None]:
        """Its offsets go, in steps of some groups."""
        for led in list(self._led.values()):
            yield from led.shard.registry.forget_topic(topic.topic_id)

    # -- whose group it is

    async def find_coordinator(
        self, group_id: str, *, wait_seconds: float = LOAD_SECONDS_MAX
    ) -> Coordinator | None:
        """Who coordinates a group; None if nobody does now.  Makes the topic if there is none."""
        broker = self._broker
        topic = await broker.cluster.ensure_internal_topic(
            CONSUMER_OFFSETS, broker.settings.offsets_topic_num_partitions, LOG_SETTINGS)
        number = shard_number(group_id, len(topic.partitions))
        leader = topic.partitions[number].leader
        known = broker.cluster.state.brokers.get(leader)
        if leader == NO_NODE or known is None:
            return None
        if leader == broker.node_id:
            led = self._led.get(number)
            if self._is_stopped or (led is not None and not led.partition.is_current):
                return None
            if led is not None and wait_seconds > 0:
                await led.shard.loaded(wait_seconds)
        return Coordinator(leader, known.host, known.port)

    def shard_of(self, group_id: str) -> tuple[Shard | None, Code]:
        """The shard that serves a group, or what to answer instead (Y2)."""
        if self._is_stopped:
            return None, Code.COORDINATOR_NOT_AVAILABLE
        topic = self._broker.cluster.state.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            return None, Code.NOT_COORDINATOR
        led = self._led.get(shard_number(group_id, len(topic.partitions)))
        if led is None or not led.partition.is_current:
            return None, Code.NOT_COORDINATOR
        if led.shard.unavailable is not Code.NONE:
            return None, led.shard.unavailable
        return led.shard, Code.NONE

    async def _loaded(self, group_id: str) -> None:
        """Wait for the shard of a group, for a moment."""
        topic = self._broker.cluster.state.topics[CONSUMER_OFFSETS]
        led = self._led.get(shard_number(group_id, len(topic.partitions)))
        if led is not None:
            await led.shard.loaded(LOAD_SECONDS_MAX)

    @property
    def unavailable(self) -> Code:
        """Why this node cannot tell of all groups that are its own; NONE if it can."""
        if self._is_stopped:
            return Code.COORDINATOR_NOT_AVAILABLE
        codes = {led.shard.unavailable for led in self._led.values()} - {Code.NONE}
        return min(codes, default=Code.NONE)

    def shards(self) -> list[Shard]:
        """Those that are served."""
        return [led.shard for led in self._led.values()
                if led.shard.unavailable is Code.NONE and led.partition.is_current]

    def all(self) -> list[Group]:
        return [group for shard in self.shards() for group in shard.all()]

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every group with its offsets; they may come and go meanwhile."""
        for shard in self.shards():
            yield from list(shard.registry.entries.items())

    # -- for handlers

    def ticket(self) -> Ticket:
        return Ticket(next(self._tickets))

    async def join(self, group_id: str, join: Join) -> Joined:
        """Be part of the next generation; returns when it begins.

        Who joins waits anyway: while groups are loading, for that as well.
        """
        shard, code = self.shard_of(group_id)
        if code is Code.COORDINATOR_LOAD_IN_PROGRESS:
            await self._loaded(group_id)
            shard, code = self.shard_of(group_id)
        if shard is None:
            return Joined(code, join.member_id)
        return await shard.join(group_id, join)

    async def sync(self, group_id: str, sync: Sync) -> Synced:
        """Get what is one's own; returns when the leader has decided."""
        shard, code = self.shard_of(group_id)
        return Synced(code) if shard is None else await shard.sync(group_id, sync)

    def heartbeat(self, group_id: str, heartbeat: Heartbeat) -> Code:
        """Say that a member is alive, and hear whether it has to join anew."""
        shard, code = self.shard_of(group_id)
        return code if shard is None else shard.heartbeat(group_id, heartbeat)

    async def leave(self, group_id: str, leavers: tuple[Leaver, ...]) -> tuple[Code, ...]:
        """Take members out; one code for each."""
        shard, code = self.shard_of(group_id)
        if shard is None:
            return (code,) * len(leavers)
        return await shard.leave(group_id, leavers)

    async def delete(self, group_id: str) -> Code:
        """Forget a group without members, and its offsets."""
        shard, code = self.shard_of(group_id)
        return code if shard is None else await shard.delete(group_id)

    async def commit(
        self, sender: offsets.Sender, wanted: Mapping[OffsetKey, Committed], *, no_group: Code
    ) -> Code:
        """Keep offsets; `no_group` is the answer to a member of a group that does not exist."""
        shard, code = self.shard_of(sender.group_id)
        if shard is None:
            return code
        return await offsets.commit(shard, sender, wanted, no_group=no_group)

    def reclaim(self) -> None:
        """Forget groups that nothing is known of; not again and again, for it looks at all."""
        now, created = self._broker.clock.monotonic(), self.usage.created_count
        many = self._broker.settings.group_max_count // RECLAIM_SHARE
        if (now - self._reclaimed_at >= RECLAIM_SECONDS
                or created - self._reclaimed_after >= max(many, 1)):
            self._reclaimed_at, self._reclaimed_after = now, created
            for shard in self.shards():
                shard.forget_blank()

    # -- from time to time

    def _sweep_later(self) -> None:
        wait_seconds = self._broker.settings.offsets_retention_check_interval_ms / 1000
        self._sweeper = asyncio.get_running_loop().call_later(wait_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweep_later()
        for shard in self.shards():
            shard.expire_offsets()
        spawn(self.trim(), "trim group logs")

    async def trim(self) -> None:
        """Drop what other nodes' snapshots have made superfluous here (Y3)."""
        topic = self._broker.cluster.state.topics.get(CONSUMER_OFFSETS)
        for number in range(len(topic.partitions) if topic is not None else 0):
            partition = self._broker.partitions.find(CONSUMER_OFFSETS, number)
            if partition is not None and number not in self._led:
                try:
                    await self._trim(partition)
                except QuipuError as error:
                    _log.warning("%s: cannot be trimmed: %s", partition.topic_partition, error)

    async def _trim(self, partition: "Partition") -> None:
        if partition.failed is not None or len(partition.log.segments) < 2:
            return
        state_log = StateLog(partition.log, GROUP, self._broker.clock)
        await in_turns(state_log.trimming(partition.commits.committed_log))
