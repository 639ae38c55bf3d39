"""The remote log metadata manager over a storage backend: the one that Quipu uses.

For each partition it is a leader (leading.py) or a follower (following.py), as the broker was told.
Writes of one partition take turns; those of different partitions do not wait for each other.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from quipu.model.errors import SettingError
from quipu.remote.class_names import construct, load_class
from quipu.remote.metadata.changes import MetadataStorage, walk_in_turns
from quipu.remote.metadata.errors import (
    CorruptMetadata,
    MetadataClosed,
    NotPartitionLeader,
    RemoteResourceNotFound,
)
from quipu.remote.metadata.following import FollowerPartition
from quipu.remote.metadata.interface import ManagerContext
from quipu.remote.metadata.leading import LeaderPartition
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.serde import KafkaSerde, MetadataSerde, read_value
from quipu.remote.metadata.storage.connector import MetadataStorageConnector, UrlConnector

CONNECTOR_CLASS: Final = "metadata.storage.connector.class"
SERIALIZER_CLASS: Final = "metadata.storage.serializer.class"
TIMEOUT_MS: Final = "metadata.storage.timeout.ms"
TIMEOUT_MS_DEFAULT: Final = 30_000
TAKEOVERS_MAX: Final = 16  # partitions that are loaded at the same time


class _Reads(Protocol):
    """What a leader and a follower have in common."""

    @property
    def is_ready(self) -> bool: ...

    async def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None: ...

    async def next_with_txn_index(
        self, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None: ...

    async def highest_offset(self, epoch: int) -> int | None: ...

    async def segments(self) -> list[RemoteLogSegmentMetadata]: ...

    async def segments_of(self, epoch: int) -> list[RemoteLogSegmentMetadata]: ...

    async def size_bytes(self, epoch: int) -> int: ...


class StoredRemoteLogMetadata:
    """Remote log metadata in a storage backend; the interface is `RemoteLogMetadataManager`."""

    def __init__(self, context: ManagerContext) -> None:
        """Read the settings; raise `SettingError` if one is wrong."""
        self._context = context
        self._connector = _connector(context)
        self._serde = _serde(context.config)
        self._timeout_seconds = _timeout_ms(context.config) / 1000
        self._storage: MetadataStorage | None = None
        self._partitions: dict[TopicIdPartition, LeaderPartition | FollowerPartition] = {}

    async def open(self) -> None:
        self._storage = MetadataStorage(
            await self._connector.open_backend(), self._connector.key_factory(), self._serde)

    async def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._leader(metadata.segment_id.partition).add(metadata)

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate
    ) -> None:
        await self._leader(update.segment_id.partition).update(update)

    async def put_remote_partition_delete_metadata(
        self, deletion: RemotePartitionDeleteMetadata
    ) -> None:
        await self._leader(deletion.partition).put_deletion(deletion)

    async def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return await self._reads(partition).find(epoch, offset)

    async def next_segment_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return await self._reads(partition).next_with_txn_index(epoch, offset)

    async def highest_offset_for_epoch(
        self, partition: TopicIdPartition, epoch: int
    ) -> int | None:
        return await self._reads(partition).highest_offset(epoch)

    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        reads = self._reads(partition)
        return await (reads.segments() if epoch is None else reads.segments_of(epoch))

    async def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        return await self._reads(partition).size_bytes(epoch)

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """Take over `leaders`; one that fails is tried again by its next read or write."""
        storage, started = self._opened(), []
        for partition in followers:
            self._partitions[partition] = FollowerPartition(storage, partition)
        for partition, leader_epoch in leaders.items():
            known = self._partitions.get(partition)
            if isinstance(known, LeaderPartition) and known.leader_epoch == leader_epoch:
                continue
            leader = LeaderPartition(
                storage, partition, leader_epoch=leader_epoch, broker_id=self._context.broker_id,
                rng=self._context.rng, timeout_seconds=self._timeout_seconds,
                entry_key=self._entry_key(storage, partition))
            self._partitions[partition] = leader
            started.append(leader)
        turns = asyncio.Semaphore(TAKEOVERS_MAX)

        async def start(leader: LeaderPartition) -> None:
            async with turns:
                await leader.start()

        async with asyncio.TaskGroup() as group:
            for leader in started:
                group.create_task(start(leader))

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self._opened()
        for partition in partitions:
            self._partitions.pop(partition, None)

    async def list_partitions(self) -> list[TopicIdPartition]:
        """All partitions of this cluster that have metadata; see `PartitionList`."""
        storage, cluster_id, found = self._opened(), self._context.cluster_id(), []
        if cluster_id:
            async for each in walk_in_turns(storage, storage.keys.cluster_key(cluster_id)):
                partition = read_value(storage.serde, TopicIdPartition, *each)
                if self._entry_key(storage, partition) != each.key:
                    raise CorruptMetadata(f"{each.key}: it is the entry of {partition}; restore it")
                found.append(partition)
        return found

    def _entry_key(self, storage: MetadataStorage, partition: TopicIdPartition) -> str | None:
        cluster_id = self._context.cluster_id()
        return storage.keys.entry_key(cluster_id, partition) if cluster_id else None

    def is_ready(self, partition: TopicIdPartition) -> bool:
        known = self._partitions.get(partition)
        return self._storage is not None and known is not None and known.is_ready

    async def close(self) -> None:
        storage, self._storage = self._storage, None
        self._partitions.clear()
        if storage is not None:
            await storage.backend.close()

    def _opened(self) -> MetadataStorage:
        if self._storage is None:
            raise MetadataClosed("remote log metadata is not open")
        return self._storage

    def _known(self, partition: TopicIdPartition) -> LeaderPartition | FollowerPartition:
        self._opened()
        known = self._partitions.get(partition)
        if known is None:
            raise RemoteResourceNotFound(f"{partition}: this broker neither leads nor follows it")
        return known

    def _reads(self, partition: TopicIdPartition) -> _Reads:
        return self._known(partition)

    def _leader(self, partition: TopicIdPartition) -> LeaderPartition:
        known = self._known(partition)
        if not isinstance(known, LeaderPartition):
            raise NotPartitionLeader(f"{partition}: this broker follows it; only its leader writes")
        return known


def _connector(context: ManagerContext) -> MetadataStorageConnector:
    name = context.config.get(CONNECTOR_CLASS)
    if not name:
        return UrlConnector(context.config, rng=context.rng, schemes=context.schemes)
    setting = f"rlmm.config.{CONNECTOR_CLASS}"
    made = construct(load_class(name, setting), setting, context.config)
    if not isinstance(made, MetadataStorageConnector):
        raise SettingError(f"{setting}: {name} has no open_backend and key_factory")
    return made


def _serde(config: Mapping[str, str]) -> MetadataSerde:
    name = config.get(SERIALIZER_CLASS)
    if not name:
        return KafkaSerde()
    setting = f"rlmm.config.{SERIALIZER_CLASS}"
    made = construct(load_class(name, setting), setting)
    if not isinstance(made, MetadataSerde):
        raise SettingError(f"{setting}: {name} has no serialize and deserialize")
    return made


def _timeout_ms(config: Mapping[str, str]) -> int:
    text = config.get(TIMEOUT_MS, str(TIMEOUT_MS_DEFAULT))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= 86_400_000):
        raise SettingError(f"rlmm.config.{TIMEOUT_MS} is {text[:40]!r}; it must be a number of "
                           "milliseconds from 1 to 86400000")
    return int(text)
