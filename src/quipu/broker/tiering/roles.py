"""Keeps the metadata manager informed of the partitions that this node leads and follows.

Invariant
    broker.tiering.R1  changes of one partition are made one after the other, in the order in which
                       they were asked for; a read of a partition that this node does not lead waits
                       until the manager follows it
"""

import asyncio
from weakref import WeakValueDictionary

from quipu.model.partition_log import PartitionLog
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import TopicIdPartition

FOLLOWED = -1  # in the place of a leader epoch


def partition_of(log: PartitionLog) -> TopicIdPartition:
    """A partition as the metadata manager knows it."""
    topic, number = log.topic_partition
    return TopicIdPartition(log.topic_id, number, topic)


class MetadataRoles:
    """The leader epochs in which this node leads partitions, as the manager knows them."""

    def __init__(self, metadata: RemoteLogMetadataManager) -> None:
        self._metadata = metadata
        self.opened = asyncio.Event()  # set when the manager is open: until then everything waits
        self._epochs: dict[TopicIdPartition, int] = {}  # FOLLOWED, or the epoch
        self._locks: WeakValueDictionary[TopicIdPartition, asyncio.Lock] = WeakValueDictionary()

    async def lead(self, partition: TopicIdPartition, epoch: int) -> None:
        """Lead `partition` in `epoch`; raise if another leader has a newer one."""
        await self.opened.wait()
        async with self._lock(partition):
            if self._epochs.get(partition, FOLLOWED) < epoch:
                self._epochs.pop(partition, None)  # unknown until it has succeeded
                await self._metadata.on_partition_leadership_changes({partition: epoch}, ())
                self._epochs[partition] = epoch

    async def follow(self, partition: TopicIdPartition, *, though_leading: bool = False) -> None:
        """Follow `partition`, unless this node leads it."""
        await self.opened.wait()
        async with self._lock(partition):  # broker.tiering.R1
            known = self._epochs.get(partition)
            if known is None or (though_leading and known != FOLLOWED):
                await self._metadata.on_partition_leadership_changes({}, [partition])
                self._epochs[partition] = FOLLOWED

    async def stop(self, partition: TopicIdPartition) -> None:
        """Forget `partition`."""
        async with self._lock(partition):
            if self._epochs.pop(partition, None) is not None:
                await self._metadata.on_stop_partitions([partition])

    def leads(self, partition: TopicIdPartition) -> bool:
        """Whether the manager leads `partition`."""
        return self._epochs.get(partition, FOLLOWED) != FOLLOWED

    def _lock(self, partition: TopicIdPartition) -> asyncio.Lock:
        lock = self._locks.get(partition)
        if lock is None:
            lock = self._locks[partition] = asyncio.Lock()
        return lock
