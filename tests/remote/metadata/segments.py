"""Short ways to write segments and their updates."""

from collections.abc import Mapping
from uuid import UUID, uuid4

from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import RemoteLogSegmentState, RemotePartitionDeleteState

SIZE = 1 << 20
NOW_MS = 1_700_000_000_000


def fresh_partition(number: int = 0) -> TopicIdPartition:
    """A partition that no other test uses."""
    return TopicIdPartition(uuid4(), number, "foo")


def segment(
    partition: TopicIdPartition, start: int, end: int, epochs: Mapping[int, int] | None = None, *,
    id: UUID | None = None, size: int = SIZE, txn_index_empty: bool = False,  # noqa: A002 its name
) -> RemoteLogSegmentMetadata:
    """A segment whose copy begins."""
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, id or uuid4()), start_offset=start,
        end_offset=end, max_timestamp_ms=-1, broker_id=0, event_timestamp_ms=NOW_MS,
        segment_size_bytes=size, segment_leader_epochs=epochs or {0: start},
        txn_index_empty=txn_index_empty)


def update(
    of: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, *, custom: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=of.segment_id, event_timestamp_ms=NOW_MS + 1, state=state, broker_id=1,
        custom_metadata=custom)


def deletion(
    partition: TopicIdPartition, state: RemotePartitionDeleteState
) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        partition=partition, state=state, event_timestamp_ms=NOW_MS, broker_id=0)
