"""OffsetForLeaderEpoch — API key 23, versions 2-4.

Behaviour
    * responds with the last epoch at or before the requested one and its end offset, so that a
      consumer can detect truncated records; -1 and -1 if no such epoch is known
    * the end of the current epoch is the high watermark, once everything in the log is committed;
      OFFSET_NOT_AVAILABLE if that takes too long (partitions/end_offset_barrier.py)
    * a current_leader_epoch that is not the current one is refused
    * any serving node of the partition responds

Versions
    v3  replica id, which makes no difference here     v4  flexible encoding
"""

from collections.abc import Iterator

from quipu.broker.error_codes import code_of
from quipu.broker.partitions.end_offset_barrier import (
    LogEnds,
    check_committed,
    wait_until_committed,
)
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.fetching import check_given_epoch
from quipu.broker.serving.routing import why_absent
from quipu.model.errors import QuipuError
from quipu.model.ids import NO_EPOCH, Epoch
from quipu.model.partition_log import NO_OFFSET, PartitionLog
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: Context
) -> OffsetForLeaderEpochResponse:
    log_ends = await wait_until_committed(_end_partitions(broker, request))
    response = OffsetForLeaderEpochResponse(topics=context.array(OffsetForLeaderTopicResult))
    for topic in request.topics:
        partitions = context.array(EpochEndOffset)
        for wanted in topic.partitions:
            await context.pause()
            partitions.append(_find(broker, topic.topic, wanted, log_ends))
        response.topics.append(
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return response


def _end_partitions(
    broker: Broker, request: OffsetForLeaderEpochRequest
) -> Iterator[PartitionLog]:
    """The partitions that can be read here and whose current epoch is requested."""
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = broker.partitions.find(topic.topic, wanted.partition)
            if (partition is not None and partition.why_unreadable() is None
                    and wanted.leader_epoch == partition.leader_epoch):
                yield partition


def _find(
    broker: Broker, topic: str, wanted: OffsetForLeaderPartition, log_ends: LogEnds
) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition)
    partition = broker.partitions.find(topic, wanted.partition)
    if partition is None:
        result.error_code = why_absent(broker, topic, wanted.partition)
        return result
    result.error_code = check_given_epoch(wanted.current_leader_epoch, partition.leader_epoch)
    if result.error_code:
        return result
    unreadable = partition.why_unreadable()
    if unreadable is not None:
        result.error_code = code_of(unreadable)
        return result
    try:
        if wanted.leader_epoch == partition.leader_epoch:
            check_committed(partition, log_ends)
            epoch, end = partition.leader_epoch, partition.high_watermark
        else:
            epoch, end = partition.epoch_end(Epoch(wanted.leader_epoch))
            if wanted.leader_epoch > partition.leader_epoch:  # not known yet
                epoch, end = NO_EPOCH, NO_OFFSET
            elif epoch < 0 and wanted.leader_epoch != NO_EPOCH:  # before the first
                epoch, end = Epoch(wanted.leader_epoch), partition.log_start_offset
        result.leader_epoch, result.end_offset = epoch, end
    except QuipuError as error:
        result.error_code = code_of(error)
    return result
