"""DescribeRemoteSegments — API key 10003, version 0.  Quipu's own.

Behaviour
    * responds with the segments in which the offsets of a range are read, in order, each of them
      finished and of the leader's own history; they end at the local start, at `end_offset`, or
      where the tier has no segment.  An offset below the log start gets none: a fetch says what is
      lost
    * in any state: with all segments, by start offset and id, their number and their size
    * at most `limit` of a partition, never more than SEGMENTS_MAX, and of all partitions about
      RESPONSE_SEGMENTS_MAX: `is_complete` says that no more follow; a limit of 0 asks for numbers
    * responds per partition: an error of one partition does not fail the others, and a limit below
      0 is an error of each
    * of a diskless partition also the size of what is in objects
    * only the leader responds, others with NOT_LEADER_OR_FOLLOWER
    * a topic without a tier has no segments, and `is_tiered` is false; so have all topics of a
      node without one, but who asks for segments in any state is told with INVALID_CONFIG
    * metadata that cannot be read within SECONDS_MAX is REQUEST_TIMED_OUT
    * the URL of the object store is without paths of files of the node; credentials are in no URL
"""

import asyncio
from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.fetching import check_epoch
from quipu.broker.serving.routing import find_topic, why_absent
from quipu.broker.tiering.lookup import SegmentPage, TierLookup
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID, Offset
from quipu.model.partition_log import PartitionLog
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribedRemotePartition,
    DescribedRemoteSegment,
    DescribedRemoteTopic,
    DescribedSegmentEpoch,
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
    RemoteSegmentsPartition,
)

SEGMENTS_MAX: Final = 1000  # of a partition
RESPONSE_SEGMENTS_MAX: Final = 20_000  # afterwards, each partition gets one
SECONDS_MAX: Final = 15.0


async def handle(
    broker: Broker, request: DescribeRemoteSegmentsRequest, context: Context
) -> DescribeRemoteSegmentsResponse:
    response = DescribeRemoteSegmentsResponse(
        storage_url=None if broker.tier is None else broker.tier.store_url,
        topics=context.array(DescribedRemoteTopic))
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    left = RESPONSE_SEGMENTS_MAX
    for topic in request.topics:
        partitions = context.array(DescribedRemotePartition)
        for wanted in topic.partitions:
            await context.pause()
            limit = min(request.limit, SEGMENTS_MAX, max(left, 1))
            result = DescribedRemotePartition(partition_index=wanted.partition_index,
                                              segments=context.array(DescribedRemoteSegment))
            try:
                if limit < 0:
                    raise RequestError(f"a limit of {limit} segments; it is 0 or more",
                                       code=Code.INVALID_REQUEST)
                async with asyncio.timeout_at(deadline):
                    page = await _describe(
                        broker, _led(broker, topic.name, wanted), wanted, result,
                        limit=limit, in_any_state=request.in_any_state)
                    left -= len(page.segments)
                    for segment in page.segments:
                        await context.pause()
                        result.segments.append(_described(segment, context))
            except TimeoutError:
                result = _failed(
                    wanted, Code.REQUEST_TIMED_OUT,
                    "the storage of the remote segments' metadata "
                    "(rlmm.config.metadata.storage.url) does not respond; see the node's log")
            except QuipuError as error:
                result = _failed(wanted, code_of(error), str(error))
            partitions.append(result)
        found = find_topic(broker, topic.name)
        response.topics.append(DescribedRemoteTopic(
            name=topic.name, partitions=partitions,
            topic_id=ZERO_UUID if found is None else found.topic_id))
    return response


def refuse(
    request: DescribeRemoteSegmentsRequest, error: QuipuError
) -> DescribeRemoteSegmentsResponse:
    """Respond with the error for each partition."""
    return DescribeRemoteSegmentsResponse(topics=[
        DescribedRemoteTopic(name=topic.name, partitions=[
            _failed(wanted, code_of(error), str(error)) for wanted in topic.partitions])
        for topic in request.topics])


def _failed(
    wanted: RemoteSegmentsPartition, code: int, message: str
) -> DescribedRemotePartition:
    return DescribedRemotePartition(
        partition_index=wanted.partition_index, error_code=code, error_message=message)


def _led(broker: Broker, topic: str, wanted: RemoteSegmentsPartition) -> PartitionLog:
    """The log of a partition that this node leads, in the epoch that the client knows."""
    log = broker.partitions.find(topic, wanted.partition_index)
    if log is None:
        raise RequestError(f"there is no partition {topic[:100]}-{wanted.partition_index} here",
                           code=why_absent(broker, topic, wanted.partition_index))
    log.check_leader()
    if code := check_epoch(wanted.current_leader_epoch, log.leader_epoch):
        raise RequestError(
            f"{log.topic_partition}: leader epoch {wanted.current_leader_epoch} is not "
            f"{log.leader_epoch}", code=Code(code))
    return log


async def _describe(
    broker: Broker, log: PartitionLog, wanted: RemoteSegmentsPartition,
    result: DescribedRemotePartition, *, limit: int, in_any_state: bool,
) -> SegmentPage:
    """Fill in the numbers of a partition; returns its segments."""
    await log.refresh()
    result.is_diskless, result.object_size = log.is_diskless, log.object_bytes
    if broker.tier is None and in_any_state and not log.is_diskless:
        raise RequestError(
            f"node {broker.settings.node_name} has no remote tier: set "
            "remote.log.storage.system.enable=true on every node", code=Code.INVALID_CONFIG)
    result.is_tiered = log.tier.is_enabled or log.tier.has_copies
    result.leader_epoch = log.leader_epoch
    result.log_start_offset, result.log_end_offset = log.log_start_offset, log.log_end_offset
    result.local_start_offset, result.local_size = log.local_start_offset, log.size_bytes
    result.highest_tiered_offset = log.highest_tiered_offset
    page = SegmentPage((), True, 0, 0)  # noqa: FBT003 of a named tuple
    if broker.tier is not None and result.is_tiered:
        if in_any_state:
            after = wanted.start_offset, wanted.after_segment_id
            page = await broker.tier.page(log, after, limit)
        else:
            page = await _readable(broker.tier, log, wanted, limit)
    if in_any_state:
        result.segment_count, result.remote_size = page.segment_count, page.copied_bytes
    result.is_complete = page.is_complete
    return page


async def _readable(
    tier: TierLookup, log: PartitionLog, wanted: RemoteSegmentsPartition, limit: int
) -> SegmentPage:
    """The segments from the requested offset on, as far as only the tier has them."""
    start, end = Offset(wanted.start_offset), log.local_start_offset
    if wanted.end_offset >= 0:
        end = Offset(min(end, wanted.end_offset))
    if not log.log_start_offset <= start < end:
        return SegmentPage((), True, 0, 0)  # noqa: FBT003 of a named tuple
    return await tier.find(log, start, end, limit)


def _described(segment: RemoteLogSegmentMetadata, context: Context) -> DescribedRemoteSegment:
    epochs = context.array(DescribedSegmentEpoch)
    for epoch, start in segment.segment_leader_epochs.items():
        epochs.append(DescribedSegmentEpoch(leader_epoch=epoch, start_offset=start))
    return DescribedRemoteSegment(
        segment_id=segment.segment_id.id, start_offset=segment.start_offset,
        end_offset=segment.end_offset, state=segment.state, size=segment.segment_size_bytes,
        max_timestamp=segment.max_timestamp_ms, event_timestamp=segment.event_timestamp_ms,
        broker_id=segment.broker_id, custom_metadata=segment.custom_metadata,
        leader_epochs=epochs)
