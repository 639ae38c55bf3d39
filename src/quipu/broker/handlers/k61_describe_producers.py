"""DescribeProducers — API key 61, version 0.

Behaviour
    * responds with the idempotent producers that a partition remembers: epoch, last sequence, and
      time of the last batch
    * there are no transactions: coordinator epoch and transaction start are -1
    * waits until everything in the log is committed (partitions/end_offset_barrier.py)
    * responds per partition: an error of one partition does not fail the others

Versions
    v0  flexible from the start
"""

from quipu.broker.error_codes import code_of
from quipu.broker.partitions.end_offset_barrier import (
    LogEnds,
    check_committed,
    wait_until_committed,
)
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import why_absent
from quipu.model.errors import QuipuError, RequestError
from quipu.model.topics import check_topic_name
from quipu.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

NO_COORDINATOR_EPOCH = -1


async def handle(
    broker: Broker, request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    log_ends = await wait_until_committed(
        partition for topic in request.topics for index in topic.partition_indexes
        if (partition := broker.partitions.find(topic.name, index)) is not None
        and partition.is_active_leader)
    response = DescribeProducersResponse(topics=context.array(TopicResponse))
    for topic in request.topics:
        partitions = context.array(PartitionResponse)
        for index in topic.partition_indexes:
            await context.pause()
            partitions.append(await _describe(broker, topic.name, index, context, log_ends))
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return response


def refuse(request: DescribeProducersRequest, error: QuipuError) -> DescribeProducersResponse:
    """Respond with the error for each partition."""
    return DescribeProducersResponse(topics=[
        TopicResponse(name=topic.name, partitions=[
            PartitionResponse(partition_index=index, error_code=code_of(error))
            for index in topic.partition_indexes])
        for topic in request.topics])


async def _describe(
    broker: Broker, topic: str, index: int, context: Context, log_ends: LogEnds
) -> PartitionResponse:
    result = PartitionResponse(
        partition_index=index, active_producers=context.array(ProducerState))
    partition = broker.partitions.find(topic, index)
    try:
        if partition is None:
            check_topic_name(topic)
            raise RequestError(f"there is no partition {topic}-{index} here",
                               code=why_absent(broker, topic, index))
        partition.check_leader()
        check_committed(partition, log_ends)
        producers = await partition.producers()
    except QuipuError as error:
        result.error_code, result.error_message = code_of(error), str(error)
        return result
    for producer in producers:
        await context.pause()
        result.active_producers.append(ProducerState(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence, last_timestamp=producer.last_timestamp,
            coordinator_epoch=NO_COORDINATOR_EPOCH))
    return result
