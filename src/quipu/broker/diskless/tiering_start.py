"""Starts what moves old records of diskless topics to a node's remote tier, and deletes them; and
what makes topics with a tier diskless.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quipu.broker.diskless.deleted_tiers import DeletedTiers
from quipu.broker.diskless.migration import start_migrations
from quipu.broker.diskless.tier_orphans import TierOrphans
from quipu.broker.diskless.tiered_partition import TieredPartition
from quipu.broker.diskless.tiering import LEASE_MS, DisklessTiering
from quipu.broker.tiering.opening import Tiering
from quipu.controller.topic_state import Topic
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn

if TYPE_CHECKING:  # it holds both
    from quipu.broker.serving.context import Broker


def start_tiering(
    broker: "Broker", tiering: Tiering, *, clock: Clock, rng: Rng
) -> list[asyncio.Task[None]]:
    """The tasks of a node that has a remote tier; cancel them before its parts are closed."""
    diskless, cluster, own_id = broker.diskless, broker.cluster, broker.settings.own_id
    assert diskless is not None

    def partitions() -> Iterator[TieredPartition]:
        for topic in cluster.state.diskless_topics():
            settings = cluster.topic_settings(topic)
            for number, partition in enumerate(topic.partitions):
                found = diskless.partitions.find_for_wire(topic.topic_id.bytes, number)
                if partition.leader == own_id and found is not None and found.is_known:
                    yield TieredPartition(
                        found.key, topic.name, settings, found.tier.epochs())

    def has_tier(topic: Topic) -> bool:
        return topic.is_diskless and cluster.topic_settings(topic).remote_storage_enable

    steps = tiering.steps(diskless.plane, clock=clock, owner=f"node {own_id} {rng.uuid()}",
                          lease_ms=LEASE_MS)
    orphans = None if tiering.store is None else TierOrphans(
        steps, tiering.store, stats=broker.stats,
        grace_ms=broker.settings.remote_log_orphan_grace_ms)
    moving = DisklessTiering(
        steps, diskless.store, tiering.deleter, partitions=partitions, run=broker.workers.run,
        rng=rng, stats=broker.stats, orphans=orphans,
        interval_seconds=broker.settings.remote_log_manager_task_interval_ms / 1000)
    deleted = DeletedTiers(tiering.deleted, tiering.view, has_tier)
    cluster.follow(deleted)
    return [spawn(moving.run(), "move diskless records to the tier"),
            spawn(deleted.run(), "delete tiers of diskless topics"),
            start_migrations(broker, tiering, clock=clock)]
