"""Finishes the deletion of partitions whose topics do not exist any more.

The node that led a partition deletes what the tier has of it (remote_log.py).  If it ends before
that is finished, nobody leads the partition again: so the controller's node looks through the list
of partitions that have metadata, and deletes those of no topic, from wherever their deletion was
interrupted.

Invariants
    broker.tiering.O3  a topic is taken for deleted only by the controller, which confirms that it
                       is the controller after it has learned what there is of the topic: then it
                       knows every topic that can have been among it
    broker.tiering.O5  a partition is deleted here only if it was of no topic one look ago, too: its
                       last leader, if it lives, has had that long

Not here: objects that no metadata refers to (orphan_sweep.py).
"""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from quipu.broker.tiering.led_partition import TierServices
from quipu.remote.metadata.interface import PartitionList
from quipu.remote.metadata.segment_metadata import TopicIdPartition

INTERVAL_SECONDS_MAX: Final = 300.0
DEAD_EPOCH: Final = 1 << 30  # plus the controller's term: above the epochs of all real leaders
DEAD_NAME: Final = "(deleted)"  # instead of the name, which nobody knows any more
TERM_MAX: Final = DEAD_EPOCH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What the deletion of dead topics needs to know about the cluster, when it is needed."""

    cluster_id: Callable[[], str]
    topics: Callable[[], AbstractSet[UUID]]  # the ids of all topics
    is_controller: Callable[[], bool]
    confirmed_term: Callable[[], Awaitable[int]]  # raises unless this node is still the controller


class DeletedPartitions:
    """Deletes metadata, and segments that it refers to, of partitions of no topic."""

    def __init__(self, services: TierServices, view: SweepView, *, grace_ms: int) -> None:
        self._services = services
        self._view = view
        self._were_dead: frozenset[TopicIdPartition] = frozenset()
        self.interval_seconds = min(grace_ms / 4000, INTERVAL_SECONDS_MAX)

    async def finish(self) -> None:
        """Finish all deletions that were interrupted, if this is the controller's node."""
        view, metadata = self._view, self._services.metadata
        await self._services.roles.opened.wait()
        if not view.is_controller() or not isinstance(metadata, PartitionList):
            self._were_dead = frozenset()
            return
        listed = await metadata.list_partitions()
        term = await view.confirmed_term()  # broker.tiering.O3
        alive = view.topics()
        dead = frozenset(each for each in listed if each.topic_id not in alive)
        twice, self._were_dead = dead & self._were_dead, dead  # broker.tiering.O5
        for each in sorted(twice, key=lambda each: (each.topic_id, each.partition)):
            await self.delete(each.topic_id, each.partition, term)

    async def delete(self, topic_id: UUID, number: int, term: int) -> None:
        """Delete the metadata of a deleted topic's partition, and the segments that it has."""
        partition = TopicIdPartition(topic_id, number, DEAD_NAME)
        epoch = DEAD_EPOCH + min(term, TERM_MAX)
        await self._services.roles.lead(partition, epoch)
        try:
            async with self._services.deletions:
                await self._services.deleter.delete_partition(partition)
        finally:
            await self._services.roles.stop(partition)
