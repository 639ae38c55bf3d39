"""The interface of a remote log metadata manager: Kafka's, with its names in Python's spelling.

`remote.log.metadata.manager.class.name` names a class of it, which is called with a
`ManagerContext`.  The default is `StoredRemoteLogMetadata` (manager.py).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.storage.connector import OpenBackend
from quipu.runtime.rng import Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerContext:
    """What a manager is made with."""

    broker_id: int
    config: Mapping[str, str]  # settings that begin with rlmm.config., without that prefix
    rng: Rng
    # Backends that this room cannot open by itself, by the scheme of their URL, such as `topic`.
    schemes: Mapping[str, OpenBackend] = field(default_factory=dict)
    cluster_id: Callable[[], str] = str  # known when partitions are led; "": in no cluster


@runtime_checkable
class RemoteLogMetadataManager(Protocol):
    """Stores and finds the metadata of remote segments, for the partitions of one broker.

    A broker leads or follows a partition as `on_partition_leadership_changes` said last; of other
    partitions it knows nothing, and raises `RemoteResourceNotFound`.
    """

    async def open(self) -> None:
        """Connect; nothing else may be called before."""
        ...

    async def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Store, durably, that the copy of a segment begins; its state is COPY_SEGMENT_STARTED."""
        ...

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate
    ) -> None:
        """Store a segment's next state; raises `RemoteResourceNotFound` if it is unknown.

        So does repeating DELETE_SEGMENT_FINISHED: then it is finished.
        """
        ...

    async def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The finished segment in which `offset` of leader epoch `epoch` is read, if any."""
        ...

    async def next_segment_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first segment from `offset` on, without a gap, with transactions in its index."""
        ...

    async def highest_offset_for_epoch(
        self, partition: TopicIdPartition, epoch: int
    ) -> int | None:
        """The highest offset that was ever copied in leader epoch `epoch`."""
        ...

    async def put_remote_partition_delete_metadata(
        self, deletion: RemotePartitionDeleteMetadata
    ) -> None:
        """Store how far the partition's deletion is; when it is finished, nothing is left of it."""
        ...

    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        """All segments; those with records of `epoch`, by start offset, if it is given."""
        ...

    async def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        """The size in bytes of all segments with records of leader epoch `epoch`."""
        ...

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        """From now on this broker leads `leaders`, in these leader epochs, and follows others."""
        ...

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """From now on this broker neither leads nor follows `partitions`."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether reads of `partition` are served at once."""
        ...

    async def close(self) -> None:
        """Release all resources; it must not be used afterwards."""
        ...


@runtime_checkable
class PartitionList(Protocol):
    """What a manager may have besides: it knows which partitions have metadata."""

    async def list_partitions(self) -> list[TopicIdPartition]:
        """All partitions of this cluster that have metadata; deleted ones until that is gone."""
        ...
