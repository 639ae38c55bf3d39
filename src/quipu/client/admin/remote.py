"""Describes what the remote tier has of a partition, with Quipu's own Kafka request."""

from typing import NamedTuple
from uuid import UUID

from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.client.remote_log import PartitionAnswer, ask_leaders
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID, TopicPartition
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import RemoteLogSegmentState
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribedRemoteSegment,
    RemoteSegmentsPartition,
)

PAGE_SEGMENTS = 1000


class TierBounds(NamedTuple):
    """The offsets and sizes of a partition in both tiers, as its leader knows them."""

    log_start: int
    local_start: int
    tiered_end: int  # the offset after the last one that is in the tier; 0: nothing is
    log_end: int
    local_bytes: int
    remote_bytes: int  # of segments that are copied, before any compression
    segment_count: int  # in any state
    object_bytes: int = 0  # of a diskless partition, in objects


class RemotePartition(NamedTuple):
    """What the remote tier has of a partition."""

    partition: TopicIdPartition
    is_tiered: bool  # the topic has a tier, or the tier still has copies
    storage_url: str | None  # None: no other process can open the store
    bounds: TierBounds  # when the listing began: the listed segments have everything below
    log_start: int  # when the listing ended: what expired meanwhile is not listed any more
    segments: tuple[RemoteLogSegmentMetadata, ...]  # in any state, by start offset
    leader_epoch: int = 0
    is_diskless: bool = False


def describe_remote(
    cluster: Cluster, partition: TopicPartition, *, with_segments: bool = True,
    page_segments: int = PAGE_SEGMENTS,
) -> RemotePartition:
    """Offsets and sizes of a partition in both tiers, and its remote segments."""
    limit = page_segments if with_segments else 0
    topic_id, storage_url, first = _ask(cluster, partition, limit, -1, ZERO_UUID)
    name = TopicIdPartition(topic_id, partition.partition, partition.topic)
    page = first
    segments = [_segment(name, each) for each in page.segments]
    while with_segments and not page.is_complete and page.segments:
        last = page.segments[-1]
        again, _, page = _ask(cluster, partition, limit, last.start_offset, last.segment_id)
        if again != topic_id:
            raise broker_refused(
                Code.INCONSISTENT_TOPIC_ID, f"cannot list remote segments of {partition}",
                "the topic was deleted and created again meanwhile")
        segments += [_segment(name, each) for each in page.segments]
    return RemotePartition(
        name, first.is_tiered, storage_url,
        TierBounds(first.log_start_offset, first.local_start_offset,
                   first.highest_tiered_offset + 1, first.log_end_offset, first.local_size,
                   first.remote_size, first.segment_count, first.object_size),
        page.log_start_offset, tuple(segments), first.leader_epoch, first.is_diskless)


def _ask(
    cluster: Cluster, partition: TopicPartition, limit: int, after_offset: int, after_id: UUID
) -> PartitionAnswer:
    """One page, of segments in any state."""
    return ask_leaders(cluster, {partition: RemoteSegmentsPartition(
        partition_index=partition.partition, start_offset=after_offset,
        after_segment_id=after_id)}, limit=limit, in_any_state=True)[partition]


def _segment(
    partition: TopicIdPartition, segment: DescribedRemoteSegment
) -> RemoteLogSegmentMetadata:
    if segment.state not in RemoteLogSegmentState.__members__.values():
        raise broker_refused(
            Code.UNSUPPORTED_VERSION, f"segment {segment.segment_id} of {partition}",
            f"its state {segment.state} is not known to this version")
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, segment.segment_id),
        start_offset=segment.start_offset, end_offset=segment.end_offset,
        max_timestamp_ms=segment.max_timestamp, broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_timestamp, segment_size_bytes=segment.size,
        segment_leader_epochs={each.leader_epoch: each.start_offset
                               for each in segment.leader_epochs},
        custom_metadata=segment.custom_metadata, state=RemoteLogSegmentState(segment.state))
