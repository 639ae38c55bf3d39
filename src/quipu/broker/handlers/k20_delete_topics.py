"""DeleteTopics — API key 20, versions 1-6.

Behaviour
    * a topic is deleted for every client when the response is sent; its files are removed later
    * responds per topic: an error of one topic does not fail the others
    * carried out by the controller; other nodes forward the request to it
Versions
    v3  TOPIC_DELETION_DISABLED (before: INVALID_REQUEST)
    v4  flexible      v5  error messages      v6  topics by id, or by name in the same list
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.topics import TopicResult
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: DeleteTopicsRequest, context: Context
) -> DeleteTopicsResponse:
    if context.api_version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
    results = await broker.cluster.controller.delete_topics(wanted)
    response = DeleteTopicsResponse(responses=context.array(DeletableTopicResult))
    for deleted in results:
        await context.pause()
        response.responses.append(_result(deleted, context.api_version))
    return response


def refuse(request: DeleteTopicsRequest, error: QuipuError) -> DeleteTopicsResponse:
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[
        DeletableTopicResult(name=name, topic_id=topic_id, error_code=code_of(error),
                             error_message=str(error))
        for name, topic_id in named])


def _result(deleted: TopicResult, version: int) -> DeletableTopicResult:
    code = deleted.code
    if code is Code.TOPIC_DELETION_DISABLED and version < 3:
        code = Code.INVALID_REQUEST
    return DeletableTopicResult(
        name=deleted.name, topic_id=deleted.topic_id, error_code=code,
        error_message=deleted.message)
