"""All groups of this node: a shard for each partition of `__consumer_offsets` that it leads.

Not here: which shard a group belongs to (coordinators/shards.py), what a shard does (shard.py), the
messages (handlers/).
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

from quipu.broker.coordinators.shards import CoordinatorShards, CoordinatorTopic, OpenLog
from quipu.broker.groups import offsets
from quipu.broker.groups.events import (
    Join,
    JoinResult,
    Leaver,
    MemberHeartbeat,
    Sync,
    SyncResult,
    Ticket,
)
from quipu.broker.groups.group import Group
from quipu.broker.groups.kafka_records import CommittedOffset, OffsetKey
from quipu.broker.groups.limits import GroupUsage
from quipu.broker.groups.registry import GroupEntry
from quipu.broker.groups.shard import GroupShard
from quipu.model.batch_types import GROUP
from quipu.model.errors import Code
from quipu.model.partition_log import PartitionLog
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.runtime.spawn import spawn

if TYPE_CHECKING:  # it holds the groups too
    from quipu.broker.serving.context import Broker
    from quipu.controller.topic_state import Topic

RECLAIM_SECONDS: Final = 10.0  # between two searches for groups that can be deleted ...
RECLAIM_SHARE: Final = 16  # ... unless a 16th of group.max.count were created since


class Groups:
    """All groups that this node coordinates; finds the coordinators of others."""

    def __init__(self, broker: "Broker", open_log: OpenLog | None = None) -> None:
        self._broker = broker
        self.usage = GroupUsage(broker.settings, broker.stats, broker.limited)
        self.shards: CoordinatorShards[GroupShard] = CoordinatorShards(
            broker, CoordinatorTopic(
                CONSUMER_OFFSETS, broker.settings.offsets_topic_num_partitions, GROUP,
                is_keyed=True),
            lambda name, log: GroupShard(broker, name, log, self), open_log)
        self._reclaimed_at = -RECLAIM_SECONDS
        self._reclaimed_after = 0  # groups that had been created by then
        self._tickets = count(1)
        self._sweeper: asyncio.TimerHandle | None = None

    # -- life

    async def start(self) -> None:
        """Load the groups of partitions that this node leads already."""
        self._broker.cluster.follow(self)
        self._sweep_later()
        await self.shards.loaded()

    async def stop(self) -> None:
        """End every waiting request with COORDINATOR_NOT_AVAILABLE, and finish writing."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.shards.stop()

    # -- leadership of partitions

    def leading_began(self, partition: PartitionLog) -> None:
        """Load the groups of `partition`, if it is one of `__consumer_offsets`."""
        self.shards.leading_began(partition)

    def leading_ended(self, partition: PartitionLog) -> None:
        """Close the groups of `partition`: another node leads it, or will."""
        self.shards.leading_ended(partition)

    # -- changes of the metadata

    def on_topic_created(self, topic: "Topic") -> None:
        """Do nothing: no offset of it is committed yet."""

    def on_partitions_added(self, topic: "Topic", first_new: int) -> None:
        """Do nothing: members notice it, and their leader starts a rebalance."""

    def on_config_changed(self, topic: "Topic") -> None:
        """Do nothing: groups do not use a topic's settings."""

    def on_replicas_changed(self, topic: "Topic") -> None:
        """Do nothing: `leading_began` and `leading_ended` notify of leadership."""

    def on_brokers_changed(self) -> None:
        """Do nothing: coordinators are looked up for each request."""

    def on_topic_deleted(self, topic: "Topic") -> Iterator[None]:
        """Delete its offsets, in steps of some groups."""
        for shard in self.shards.led():
            yield from offsets.forget_topic(shard, topic)

    # -- groups

    def all(self) -> list[Group]:
        return [group for shard in self.shards for group in shard.all()]

    def entries(self) -> Iterator[tuple[str, GroupEntry]]:
        """Every group with its offsets; they may change during the iteration."""
        for shard in self.shards:
            yield from list(shard.registry.entries.items())

    # -- for handlers

    def ticket(self) -> Ticket:
        return Ticket(next(self._tickets))

    async def join(self, group_id: str, join: Join) -> JoinResult:
        """Join the next generation; returns when it begins.

        If the groups are loading, it waits a moment for that too.
        """
        shard, code = await self.shards.shard_loaded(group_id)
        if shard is None:
            return JoinResult(code, join.member_id)
        return await shard.join(group_id, join)

    async def sync(self, group_id: str, sync: Sync) -> SyncResult:
        """Get a member's assignment; returns when the leader has sent it."""
        shard, code = self.shards.shard_of(group_id)
        return SyncResult(code) if shard is None else await shard.sync(group_id, sync)

    def heartbeat(self, group_id: str, heartbeat: MemberHeartbeat) -> Code:
        """Note that a member is alive; returns whether it must join again, as a code."""
        shard, code = self.shards.shard_of(group_id)
        return code if shard is None else shard.heartbeat(group_id, heartbeat)

    async def leave(self, group_id: str, leavers: tuple[Leaver, ...]) -> tuple[Code, ...]:
        """Remove members; returns one code for each."""
        shard, code = self.shards.shard_of(group_id)
        if shard is None:
            return (code,) * len(leavers)
        return await shard.leave(group_id, leavers)

    async def delete(self, group_id: str) -> Code:
        """Delete a group without members, and its offsets."""
        shard, code = self.shards.shard_of(group_id)
        return code if shard is None else await shard.delete(group_id)

    async def commit(
        self, sender: offsets.Sender, wanted: Mapping[OffsetKey, CommittedOffset], *, no_group: Code
    ) -> Code:
        """Commit offsets; `no_group` is the code if a member's group does not exist."""
        shard, code = self.shards.shard_of(sender.group_id)
        if shard is None:
            return code
        return await offsets.commit(shard, sender, wanted, no_group=no_group)

    def reclaim(self) -> None:
        """Delete groups without members and offsets; not too often, as it iterates over all."""
        now, created = self._broker.clock.monotonic(), self.usage.created_count
        many = self._broker.settings.group_max_count // RECLAIM_SHARE
        if (now - self._reclaimed_at >= RECLAIM_SECONDS
                or created - self._reclaimed_after >= max(many, 1)):
            self._reclaimed_at, self._reclaimed_after = now, created
            for shard in self.shards:
                shard.forget_blank()

    # -- from time to time

    def _sweep_later(self) -> None:
        wait_seconds = self._broker.settings.offsets_retention_check_interval_ms / 1000
        self._sweeper = asyncio.get_running_loop().call_later(wait_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweep_later()
        for shard in self.shards:
            shard.expire_offsets()
        spawn(self.shards.trim(), "trim group logs")
