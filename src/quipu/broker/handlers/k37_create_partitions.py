"""CreatePartitions — API key 37, versions 0-3.

Behaviour
    * adds partitions to a topic, and never removes any; they serve when the response is sent
    * they have as many replicas as the others, on brokers that the request may name
    * responds per topic: an error of one topic does not fail the others
    * carried out by the controller; other nodes forward the request to it
Versions
    v2  flexible      v3  quota errors (none here)
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.topic_requests import NewPartitions
from quipu.model.errors import QuipuError
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    results = await broker.cluster.controller.create_partitions(
        [_wanted(topic) for topic in request.topics], validate_only=request.validate_only)
    response = CreatePartitionsResponse(results=context.array(CreatePartitionsTopicResult))
    for result in results:
        await context.pause()
        response.results.append(CreatePartitionsTopicResult(
            name=result.name or "", error_code=result.code, error_message=result.message))
    return response


def refuse(request: CreatePartitionsRequest, error: QuipuError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[
        CreatePartitionsTopicResult(
            name=topic.name, error_code=code_of(error), error_message=str(error))
        for topic in request.topics])


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        name=topic.name,
        total=topic.count,
        assignments=None if assignments is None else [item.broker_ids for item in assignments],
    )
