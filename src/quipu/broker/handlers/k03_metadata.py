"""Metadata — API key 3, versions 0-13.

Behaviour
    * responds with the brokers that are up, or were until a moment ago (cluster/listing.py), the
      controller, and the partitions, leaders and replicas of each topic
    * a topic that does not exist is created if the request and auto.create.topics.enable allow it;
      it is ready when the response is sent, so clients need not ask again; without a controller it
      gets LEADER_NOT_AVAILABLE, and clients ask again
    * a partition whose log has failed is shown without a leader
    * addresses are those of the listener that the client connected to.  A broker without this
      listener is left out, and partitions that it leads have LISTENER_NOT_FOUND (before v6:
      LEADER_NOT_AVAILABLE)
    * of a partition of a diskless topic, a client with a zone (serving/client_zone.py) is shown the
      live replica in its zone alone, if there is one (serving/zone_views.py)
Versions
    v0   an empty list of topics asks for all
    v1   null asks for all, an empty list for none; rack, controller, is_internal
    v2   cluster id                        v3   throttle time
    v4   allow_auto_topic_creation         v5   offline replicas
    v7   leader epoch                      v8   authorized operations
    v9   flexible                          v10  topic ids in the response
    v11  no authorized operations of the cluster: DescribeCluster has them
    v12  topics can be requested by id, and a tagged field of our own says which are diskless
    v13  an error code for the whole response
"""

from typing import Final
from uuid import UUID

from quipu.broker.error_codes import code_of
from quipu.broker.serving.client_zone import zone_of
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.forwarding import request_controller
from quipu.broker.serving.routing import controller_for
from quipu.broker.serving.topic_views import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from quipu.controller.topic_state import Topic
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
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CREATE_SECONDS_MAX: Final = 3.0  # the rest of the response waits meanwhile
CREATE_VERSION: Final = 4  # of CreateTopics: the last without settings in the response


async def handle(broker: Broker, request: MetadataRequest, context: Context) -> MetadataResponse:
    wanted = _wanted(request, context.api_version)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics, zone = context.array(MetadataResponseTopic), zone_of(broker, context)
    if wanted is None:
        for known in list(broker.cluster.state.topics.values()):
            await context.pause()
            topics.append(await _topic(broker, known, operations, context, zone))
    else:
        refused = await _create_missing(broker, request, wanted, context)
        for requested in wanted:
            await context.pause()
            topic = broker.cluster.state.find_topic(requested.name, requested.topic_id)
            topics.append(_missing(requested, refused, operations) if topic is None
                          else await _topic(broker, topic, operations, context, zone))
    cluster_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=known.node_id, host=there.host, port=there.port,
                                   rack=known.rack)
            for known in broker.cluster.listed_brokers(for_topics=bool(wanted))
            if (there := known.endpoint(context.listener.name)) is not None
        ],
        cluster_id=broker.cluster.state.cluster_id,
        controller_id=controller_for(broker, context.listener),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
    )


def refuse(request: MetadataRequest, error: QuipuError) -> MetadataResponse:
    """Respond to a failed request with an error for each topic that it names.

    The response to a request for all topics has no field for an error.  A request of v10 may omit a
    name, its response may not: the name is empty then, as Kafka's is.
    """
    return MetadataResponse(topics=[
        MetadataResponseTopic(
            error_code=code_of(error), name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()])


def _wanted(request: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """The requested topics without duplicates; None for all.

    As in Kafka, a request that names topics by id asks for nothing else.
    """
    if request.topics is None or (version == 0 and not request.topics):
        return None
    for topic in request.topics:
        if version < 12 and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise RequestError(
                f"Metadata version {version} asks for topics by name; by id from version 12 on",
                code=Code.INVALID_REQUEST)
    by_id = {topic.topic_id: topic for topic in request.topics if topic.topic_id != ZERO_UUID}
    if by_id:
        return list(by_id.values())
    return list({topic.name: topic for topic in request.topics}.values())


async def _create_missing(
    broker: Broker, request: MetadataRequest, wanted: list[MetadataRequestTopic], context: Context
) -> dict[str, Code]:
    """Create the missing topics, if that is allowed; returns the errors of those that failed."""
    if not (request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable):
        return {}
    known = broker.cluster.state.topics
    missing = [
        topic.name for topic in wanted
        if topic.name is not None and topic.topic_id == ZERO_UUID
        and topic.name not in known and not is_internal(topic.name)
    ]
    if not missing:
        return {}
    try:
        response = await request_controller(
            broker, CreateTopicsRequest(topics=[
                CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
                for name in missing]),
            context._replace(api_version=CREATE_VERSION), timeout_seconds=CREATE_SECONDS_MAX)
    except QuipuError as error:  # the error of the new topics alone
        timed_out = code_of(error) is Code.REQUEST_TIMED_OUT
        code = Code.LEADER_NOT_AVAILABLE if timed_out else code_of(error)
        return dict.fromkeys(missing, code)
    assert isinstance(response, CreateTopicsResponse)
    return {topic.name: Code(topic.error_code) for topic in response.topics
            if topic.error_code != Code.NONE}


def _missing(
    wanted: MetadataRequestTopic, refused: dict[str, Code], operations: int
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=_why_missing(wanted.name, wanted.topic_id, refused),
        name=wanted.name if wanted.topic_id == ZERO_UUID else None,
        topic_id=wanted.topic_id,
        is_internal=wanted.name is not None and is_internal(wanted.name),
        topic_authorized_operations=operations if wanted.topic_id == ZERO_UUID else NOT_ASKED,
    )


def _why_missing(name: str | None, topic_id: UUID, refused: dict[str, Code]) -> Code:
    if name is None or topic_id != ZERO_UUID:
        return Code.UNKNOWN_TOPIC_ID
    try:
        check_topic_name(name)
    except QuipuError as error:
        return code_of(error)
    return refused.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)


async def _topic(
    broker: Broker, topic: Topic, operations: int, context: Context, zone: str | None
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=await broker.cluster.views.show(broker, topic, context, zone),
        topic_authorized_operations=operations,
        is_diskless=topic.is_diskless,
    )
