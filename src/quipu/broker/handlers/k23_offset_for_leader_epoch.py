"""OffsetForLeaderEpoch — API key 23, versions 2-4.

Behaviour
    * tells the last epoch at or before the one asked for and where it ended, by which a consumer
      finds out whether what it read is still there; -1 and -1 if no such epoch is known
    * the end of the current epoch is the end of what is committed, once all that the log holds
      is; OFFSET_NOT_AVAILABLE if that takes too long (settling.py)
    * a current_leader_epoch that is not this leader's is refused
    * any node that serves the partition answers

Versions
    v3  replica id, which makes no difference here     v4  flexible encoding
"""

from collections.abc import Iterator

from quipu.broker.context import Broker, Context
from quipu.broker.fetching import check_epoch
from quipu.broker.partition import Partition
from quipu.broker.routing import why_absent
from quipu.broker.settling import Marks, check_settled, settle
from quipu.model.errors import QuipuError
from quipu.model.ids import Epoch
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
    marks = await settle(_asked_for_ends(broker, request))
    response = OffsetForLeaderEpochResponse(topics=context.array(OffsetForLeaderTopicResult))
    for topic in request.topics:
        partitions = context.array(EpochEndOffset)
        for wanted in topic.partitions:
            await context.pause()
            partitions.append(_find(broker, topic.topic, wanted, marks))
        response.topics.append(
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return response


def _asked_for_ends(
    broker: Broker, request: OffsetForLeaderEpochRequest
) -> Iterator[Partition]:
    """The partitions that can be read here and whose current epoch is asked for."""
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = broker.partitions.find(topic.topic, wanted.partition)
            if (partition is not None and partition.readable() is None
                    and wanted.leader_epoch == partition.leader_epoch):
                yield partition


def _find(
    broker: Broker, topic: str, wanted: OffsetForLeaderPartition, marks: Marks
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    partition = broker.partitions.find(topic, wanted.partition)
    if partition is None:
        answer.error_code = why_absent(broker, topic, wanted.partition)
        return answer
    answer.error_code = check_epoch(wanted.current_leader_epoch, partition.leader_epoch)
    if answer.error_code:
        return answer
    try:
        error = partition.readable()
        if error is not None:
            raise error
        if wanted.leader_epoch == partition.leader_epoch:
            check_settled(partition, marks)
            epoch, end = partition.leader_epoch, partition.high_watermark
        else:
            epoch, end = partition.log.epoch_end(Epoch(wanted.leader_epoch))
        answer.leader_epoch, answer.end_offset = epoch, end
    except QuipuError as error:
        answer.error_code = error.code
    return answer
