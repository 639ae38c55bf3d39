"""CreateTopics — API key 19, versions 2-7.

Behaviour
    * a topic is durable, and its partitions serve, before the answer leaves
    * answers per topic: one bad topic does not fail the others
    * validate_only answers as if, and creates nothing
    * -1 partitions or replicas take num.partitions and default.replication.factor
    * a name that comes twice is INVALID_REQUEST; more than max.partitions in all, or more than
      10,000 in one request, POLICY_VIOLATION; the cluster's own names INVALID_TOPIC_EXCEPTION
    * many topics are decided in several steps: if the controller goes in between, what is left is
      told so, and what was created is there
    * answered by the controller, whichever node is asked
Versions
    v4  -1 may be asked for         v5  flexible; the answer has partitions, replicas, settings
    v6  quota errors (none here)    v7  topic ids in the answer
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.controller.describe import Entry, describe_topic
from quipu.controller.state import Topic
from quipu.controller.topics import NewTopic, TopicAnswer
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

ON_CONTROLLER: Final = True
DESCRIBED_SINCE: Final = 5


async def handle(
    broker: Broker, request: CreateTopicsRequest, context: Context
) -> CreateTopicsResponse:
    answers = await broker.cluster.changes.create_topics(
        [_wanted(topic) for topic in request.topics], validate_only=request.validate_only)
    response = CreateTopicsResponse(topics=context.array(CreatableTopicResult))
    described = _Described(broker, context)
    for answer in answers:
        await context.pause()
        response.topics.append(_result(answer, request, described))
    return response


def refuse(request: CreateTopicsRequest, error: QuipuError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[
        CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
        for topic in request.topics])


def _wanted(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(item.partition_index, item.broker_ids) for item in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


class _Described:
    """The settings of new topics, made once for all that have the same."""

    def __init__(self, broker: Broker, context: Context) -> None:
        self._ladder = broker.cluster.ladder()
        self._is_asked = context.api_version >= DESCRIBED_SINCE
        self._known: dict[tuple[int, frozenset[tuple[str, str]]], list[CreatableTopicConfigs]] = {}

    def of(self, topic: Topic) -> list[CreatableTopicConfigs]:
        if not self._is_asked:
            return []
        key = topic.replication_factor, frozenset(topic.configs.items())
        if key not in self._known:
            self._known[key] = [_config(entry) for entry in describe_topic(topic, self._ladder)]
        return self._known[key]


def _result(
    answer: TopicAnswer, request: CreateTopicsRequest, described: _Described
) -> CreatableTopicResult:
    assert answer.name is not None
    if answer.code is not Code.NONE:
        return CreatableTopicResult(
            name=answer.name, error_code=answer.code, error_message=answer.message)
    topic = answer.topic
    assert topic is not None
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if request.validate_only else topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=described.of(topic),
    )


def _config(entry: Entry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.row.name, value=entry.value, read_only=entry.read_only,
        config_source=entry.source)
