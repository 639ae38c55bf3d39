"""DescribeProducers — API key 61, version 0.

Behaviour
    * tells the idempotent producers that a partition remembers: epoch, last sequence, last seen
    * there are no transactions: coordinator epoch and transaction start are -1
    * tells nothing that can still be taken back: waits until it is committed (settling.py)
    * answers per partition: one bad partition does not fail the others

Versions
    v0  flexible from the start
"""

from quipu.broker.context import Broker, Context
from quipu.broker.routing import why_absent
from quipu.broker.settling import Marks, check_settled, settle
from quipu.model.errors import QuipuError
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
    marks = await settle(
        partition for topic in request.topics for index in topic.partition_indexes
        if (partition := broker.partitions.find(topic.name, index)) is not None
        and partition.may_lead)
    response = DescribeProducersResponse(topics=context.array(TopicResponse))
    for topic in request.topics:
        partitions = context.array(PartitionResponse)
        for index in topic.partition_indexes:
            await context.pause()
            partitions.append(await _describe(broker, topic.name, index, context, marks))
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return response


def refuse(request: DescribeProducersRequest, error: QuipuError) -> DescribeProducersResponse:
    """Tell every partition that all failed."""
    return DescribeProducersResponse(topics=[
        TopicResponse(name=topic.name, partitions=[
            PartitionResponse(partition_index=index, error_code=error.code)
            for index in topic.partition_indexes])
        for topic in request.topics])


async def _describe(
    broker: Broker, topic: str, index: int, context: Context, marks: Marks
) -> PartitionResponse:
    answer = PartitionResponse(
        partition_index=index, active_producers=context.array(ProducerState))
    partition = broker.partitions.find(topic, index)
    if partition is None:
        answer.error_code = why_absent(broker, topic, index)
        answer.error_message = f"there is no partition {topic[:100]}-{index} here"
        return answer
    try:
        partition.must_lead()
        check_settled(partition, marks)
        producers = partition.log.producers()
    except QuipuError as error:
        answer.error_code, answer.error_message = error.code, str(error)
        return answer
    for producer in producers:
        await context.pause()
        answer.active_producers.append(ProducerState(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence, last_timestamp=producer.last_timestamp,
            coordinator_epoch=NO_COORDINATOR_EPOCH))
    return answer
