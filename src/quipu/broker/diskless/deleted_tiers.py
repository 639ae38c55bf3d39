"""Deletes what the remote tier has of diskless topics that are deleted, soon after.

Only the controller's node does it, in the epoch of a dead topic: whoever still moves records of it
is refused.  If the node ends before that is finished, the partitions are found later in the list of
those that have metadata (broker/tiering/deleted_partitions.py).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from uuid import UUID

from quipu.broker.tiering.deleted_partitions import DeletedPartitions, SweepView
from quipu.controller.topic_state import Topic
from quipu.model.errors import QuipuError

_log = logging.getLogger(__name__)


class DeletedTiers:
    """Follows the cluster's metadata; `has_tier` tells which topics are diskless and tiered."""

    def __init__(
        self, deleted: DeletedPartitions, view: SweepView, has_tier: Callable[[Topic], bool]
    ) -> None:
        self._deleted = deleted
        self._view = view
        self._has_tier = has_tier
        self._waiting: dict[UUID, int] = {}  # topics, and their numbers of partitions
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Delete what is waiting, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                await self._delete(*self._waiting.popitem())

    async def _delete(self, topic_id: UUID, partition_count: int) -> None:
        try:
            term = await self._view.confirmed_term()  # broker.tiering.O3
            for number in range(partition_count):
                await self._deleted.delete(topic_id, number, term)
        except QuipuError as error:
            _log.warning("the remote segments of the deleted topic %s are deleted later, because "
                         "that failed: %s", topic_id, error)

    # -- changes of the metadata

    def on_topic_deleted(self, topic: Topic) -> Iterator[None] | None:
        """Delete its segments soon, if this is the controller's node."""
        if self._has_tier(topic) and self._view.is_controller():
            self._waiting[topic.topic_id] = len(topic.partitions)
            self._changed.set()
        return None

    def on_topic_created(self, topic: Topic) -> None:
        """Do nothing: it has no segments yet."""

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        """Do nothing: they have no segments yet."""

    def on_config_changed(self, topic: Topic) -> None:
        """Do nothing: the next pass knows (tiering.py)."""

    def on_replicas_changed(self, topic: Topic) -> None:
        """Do nothing: segments are those of the topic."""

    def on_brokers_changed(self) -> None:
        """Do nothing: segments are those of the topic."""
