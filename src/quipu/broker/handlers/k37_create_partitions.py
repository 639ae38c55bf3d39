"""CreatePartitions — API key 37, versions 0-3.

Behaviour
    * a topic gets partitions after those it has, never fewer; they serve when the answer leaves
    * answers per topic: one bad topic does not fail the others
    * answered by the controller, whichever node is asked
Versions
    v2  flexible      v3  quota errors (none here)
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.controller.topics import NewPartitions
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
    answers = await broker.cluster.create_partitions(
        [_wanted(topic) for topic in request.topics], validate_only=request.validate_only)
    response = CreatePartitionsResponse(results=context.array(CreatePartitionsTopicResult))
    for answer in answers:
        await context.pause()
        response.results.append(CreatePartitionsTopicResult(
            name=answer.name or "", error_code=answer.code, error_message=answer.message))
    return response


def refuse(request: CreatePartitionsRequest, error: QuipuError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[
        CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=str(error))
        for topic in request.topics])


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        name=topic.name,
        total=topic.count,
        assignments=None if assignments is None else [item.broker_ids for item in assignments],
    )
