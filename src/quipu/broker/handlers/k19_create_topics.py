"""CreateTopics — API key 19, versions 2-7.

Behaviour
    * a topic is durable, and its partitions serve, before the response is sent
    * responds per topic: an error of one topic does not fail the others
    * with validate_only it responds as if topics were created, and creates none
    * -1 partitions or replicas take num.partitions and default.replication.factor
    * any replication factor up to the number of brokers, and any manual assignment to brokers of
      which one is up at least; the response and Metadata show the replicas, preferred leader first
    * a name that comes twice is INVALID_REQUEST; more than max.partitions in all, or more than
      10,000 in one request, POLICY_VIOLATION; names of internal topics INVALID_TOPIC_EXCEPTION
    * many topics are created in several steps: if the controller changes in between, the remaining
      topics get an error, and the others stay
    * carried out by the controller; other nodes forward the request to it
Versions
    v4  -1 may be requested         v5  flexible; the response has partitions, replicas, settings
    v6  quota errors (none here)    v7  topic ids in the response
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.describe_configs import ConfigEntry, describe_topic
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topic_state import Topic
from quipu.controller.topics import TopicResult
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
    wanted = []
    for topic in request.topics:
        await context.pause()
        wanted.append(_wanted(topic))
    results = await broker.cluster.controller.create_topics(
        wanted, validate_only=request.validate_only,
        request_id=None if context.request_id == ZERO_UUID else context.request_id)
    response = CreateTopicsResponse(topics=context.array(CreatableTopicResult))
    described = _Described(broker, context)
    for created in results:
        await context.pause()
        response.topics.append(_result(created, request, described))
    return response


def refuse(request: CreateTopicsRequest, error: QuipuError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[
        CreatableTopicResult(name=topic.name, error_code=code_of(error), error_message=str(error))
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
    """Describes the settings of new topics; once for all topics with the same settings."""

    def __init__(self, broker: Broker, context: Context) -> None:
        self._layers = broker.cluster.layers()
        self._is_asked = context.api_version >= DESCRIBED_SINCE
        self._known: dict[tuple[int, frozenset[tuple[str, str]]], list[CreatableTopicConfigs]] = {}

    def of(self, topic: Topic) -> list[CreatableTopicConfigs]:
        if not self._is_asked:
            return []
        key = topic.replication_factor, frozenset(topic.configs.items())
        if key not in self._known:
            self._known[key] = [_config(entry) for entry in describe_topic(topic, self._layers)]
        return self._known[key]


def _result(
    created: TopicResult, request: CreateTopicsRequest, described: _Described
) -> CreatableTopicResult:
    assert created.name is not None
    if created.code is not Code.NONE:
        return CreatableTopicResult(
            name=created.name, error_code=created.code, error_message=created.message)
    topic = created.topic
    assert topic is not None
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if request.validate_only else topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=described.of(topic),
    )


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.row.name, value=entry.value, read_only=entry.read_only,
        config_source=entry.source)
