"""Metadata — API key 3, versions 0-13.

Behaviour
    * tells the brokers that are up or just were (cluster/listing), the controller, and per topic
      its partitions, leaders and replicas
    * a topic that is not there is created if the request and auto.create.topics.enable allow it;
      it is ready when the answer leaves, so clients need not ask again; without a controller it
      is LEADER_NOT_AVAILABLE, and they do
    * a partition whose log has failed is shown without a leader
Versions
    v0   an empty list of topics asks for all
    v1   null asks for all, an empty list for none; rack, controller, is_internal
    v2   cluster id                        v3   throttle time
    v4   allow_auto_topic_creation         v5   offline replicas
    v7   leader epoch                      v8   authorized operations
    v9   flexible                          v10  topic ids in the answer
    v11  the cluster's authorized operations are asked by DescribeCluster instead
    v12  topics can be asked for by id     v13  an error code for the whole answer
"""

from typing import Final
from uuid import UUID

from quipu.broker.context import Broker, Context
from quipu.broker.topic_views import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from quipu.controller.state import Topic
from quipu.controller.topics import NewTopic
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID
from quipu.model.topics import check_topic_name, is_internal
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

CREATE_SECONDS_MAX: Final = 3.0  # others want to know the brokers


async def handle(broker: Broker, request: MetadataRequest, context: Context) -> MetadataResponse:
    wanted = _wanted(request, context.api_version)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics = context.array(MetadataResponseTopic)
    if wanted is None:
        for known in list(broker.cluster.state.topics.values()):
            await context.pause()
            topics.append(await _topic(broker, known, operations, context))
    else:
        refused = await _create_missing(broker, request, wanted)
        for asked in wanted:
            await context.pause()
            topic = broker.cluster.state.find_topic(asked.name, asked.topic_id)
            topics.append(_missing(asked, refused) if topic is None
                          else await _topic(broker, topic, operations, context))
    cluster_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=known.node_id, host=known.host, port=known.port,
                                   rack=known.rack)
            for known in broker.cluster.listed_brokers(for_topics=bool(wanted))
        ],
        cluster_id=broker.cluster.state.cluster_id,
        controller_id=broker.cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
    )


def refuse(request: MetadataRequest, error: QuipuError) -> MetadataResponse:
    """Tell every topic that all failed; nobody can be told who asked for all topics.

    A request of v10 may leave out a name, its answer may not: it is empty then, as Kafka's is.
    """
    return MetadataResponse(topics=[
        MetadataResponseTopic(
            error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()])


def _wanted(request: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """The topics asked for, each once; None for all."""
    if request.topics is None or (version == 0 and not request.topics):
        return None
    for topic in request.topics:
        if version < 12 and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise RequestError(
                f"Metadata version {version} asks for topics by name; by id from version 12 on",
                code=Code.INVALID_REQUEST)
    return list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())


async def _create_missing(
    broker: Broker, request: MetadataRequest, wanted: list[MetadataRequestTopic]
) -> dict[str, Code]:
    """Create what is missing and may be created; gives the errors of what could not be."""
    if not (request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable):
        return {}
    known = broker.cluster.state.topics
    missing = [
        NewTopic(topic.name) for topic in wanted
        if topic.name is not None and topic.topic_id == ZERO_UUID
        and topic.name not in known and not is_internal(topic.name)
    ]
    if not missing:
        return {}
    try:
        answers = await broker.cluster.create_topics(missing, timeout_seconds=CREATE_SECONDS_MAX)
    except QuipuError as error:  # of the new topics alone: the others are there, and told
        timed_out = error.code is Code.REQUEST_TIMED_OUT
        code = Code.LEADER_NOT_AVAILABLE if timed_out else error.code
        return {topic.name: code for topic in missing}
    return {answer.name: answer.code for answer in answers
            if answer.name is not None and answer.code is not Code.NONE}


def _missing(wanted: MetadataRequestTopic, refused: dict[str, Code]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=_why_missing(wanted.name, wanted.topic_id, refused),
        name=wanted.name if wanted.topic_id == ZERO_UUID else None,
        topic_id=wanted.topic_id,
        is_internal=wanted.name is not None and is_internal(wanted.name),
    )


def _why_missing(name: str | None, topic_id: UUID, refused: dict[str, Code]) -> Code:
    if name is None or topic_id != ZERO_UUID:
        return Code.UNKNOWN_TOPIC_ID
    try:
        check_topic_name(name)
    except QuipuError as error:
        return error.code
    return refused.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)


async def _topic(
    broker: Broker, topic: Topic, operations: int, context: Context
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=await broker.cluster.views.show(broker, topic, context),
        topic_authorized_operations=operations,
    )
