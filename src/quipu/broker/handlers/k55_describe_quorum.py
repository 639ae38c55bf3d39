"""DescribeQuorum — API key 55, versions 0-2.

Behaviour
    * responds with the leader of the metadata quorum, and the log end of each voter and observer
    * the one quorum is partition 0 of `__cluster_metadata`, as Kafka calls it; a request for
      anything else, or for more, is UNKNOWN_TOPIC_OR_PARTITION
    * carried out by the controller, which alone knows the progress of the other nodes; other nodes
      forward the request to it
Versions
    v1  when a replica last fetched, and when it last had every entry
    v2  error messages, the ids of data directories, and the addresses of the voters
"""

from collections.abc import Iterable
from typing import Final

from quipu.broker.quorum import QuorumView, ReplicaView
from quipu.broker.serving.context import Broker, Context
from quipu.controller.members import BrokerState
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, ZERO_UUID
from quipu.model.listeners import DEFAULT, ListenerEndpoint
from quipu.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    QuorumPartitionData,
    QuorumTopicData,
    ReplicaState,
)

ON_CONTROLLER: Final = True
METADATA_TOPIC: Final = "__cluster_metadata"
LISTENER_NAME: Final = "PEER"


async def handle(
    broker: Broker, request: DescribeQuorumRequest, context: Context
) -> DescribeQuorumResponse:
    view = await broker.cluster.describe_quorum()
    is_asked = _names_the_quorum(request)
    response = DescribeQuorumResponse(topics=context.array(QuorumTopicData))
    for topic in request.topics:
        partitions = context.array(QuorumPartitionData)
        for partition in topic.partitions:
            await context.pause()
            partitions.append(_partition(broker, view) if is_asked else QuorumPartitionData(
                partition_index=partition.partition_index,
                error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"ask for partition 0 of {METADATA_TOPIC}, the one quorum, alone"))
        response.topics.append(
            QuorumTopicData(topic_name=topic.topic_name, partitions=partitions))
    if is_asked:
        response.nodes = _nodes(broker, view)
    return response


def _names_the_quorum(request: DescribeQuorumRequest) -> bool:
    """Whether a request is for the one quorum and nothing else, as Kafka wants it."""
    return [(topic.topic_name, each.partition_index) for topic in request.topics
            for each in topic.partitions] == [(METADATA_TOPIC, 0)] and len(request.topics) == 1


def _partition(broker: Broker, view: QuorumView) -> QuorumPartitionData:
    return QuorumPartitionData(
        partition_index=0,
        leader_id=NO_NODE if view.leader is None else view.leader,
        leader_epoch=view.term,
        high_watermark=view.commit_index + 1,  # the offset after the last one, as Kafka counts
        current_voters=_replicas(broker, view.voters),
        observers=_replicas(broker, view.observers))


def _replicas(broker: Broker, views: Iterable[ReplicaView]) -> list[ReplicaState]:
    brokers = broker.cluster.state.brokers
    return [
        ReplicaState(replica_id=view.node_id, log_end_offset=view.log_end,
                     replica_directory_id=brokers[view.node_id].directory_id
                     if view.node_id in brokers else ZERO_UUID,
                     last_fetch_timestamp=view.last_fetch_ms,
                     last_caught_up_timestamp=view.last_caught_up_ms)
        for view in views]


def _nodes(broker: Broker, view: QuorumView) -> list[Node]:
    """The voters that have registered, and where they are reached."""
    brokers = broker.cluster.state.brokers
    return [Node(node_id=voter.node_id, listeners=_listeners(brokers[voter.node_id]))
            for voter in view.voters if voter.node_id in brokers]


def _listeners(known: BrokerState) -> list[Listener]:
    if known.peer_host:
        return [Listener(name=LISTENER_NAME, host=known.peer_host, port=known.peer_port)]
    # A node without others has no address for them: it is reached where clients reach it.
    own = known.listeners or (ListenerEndpoint(DEFAULT.name, known.host, known.port),)
    return [Listener(name=each.listener, host=each.host, port=each.port) for each in own]
