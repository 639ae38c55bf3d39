"""OffsetForLeaderEpoch — API key 23, versions 2-4.

Behaviour
    * tells the last epoch at or before the one asked for and where it ended, by which a consumer
      finds out whether what it read is still there; -1 and -1 if no such epoch is known
    * the end of the leader's own epoch is the end of its log
    * a current_leader_epoch that is not this leader's is refused
    * any node that serves the partition answers

Versions
    v3  replica id, which makes no difference here     v4  flexible encoding
"""

from quipu.broker.context import Broker, Context
from quipu.broker.fetching import check_epoch
from quipu.broker.routing import why_absent
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
    response = OffsetForLeaderEpochResponse(topics=context.array(OffsetForLeaderTopicResult))
    for topic in request.topics:
        partitions = context.array(EpochEndOffset)
        for wanted in topic.partitions:
            await context.pause()
            partitions.append(_find(broker, topic.topic, wanted))
        response.topics.append(
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return response


def _find(broker: Broker, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
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
            epoch, end = partition.leader_epoch, partition.log.end_offset
        else:
            epoch, end = partition.log.epoch_end(Epoch(wanted.leader_epoch))
        answer.leader_epoch, answer.end_offset = epoch, end
    except QuipuError as error:
        answer.error_code = error.code
    return answer
