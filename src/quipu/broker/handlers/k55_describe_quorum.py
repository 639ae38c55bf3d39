"""DescribeQuorum — API key 55, versions 0-2.

Behaviour
    * responds with the leader of the metadata quorum, and the log end of each voter and observer
    * the one quorum is partition 0 of `__cluster_metadata`, as Kafka calls it
    * carried out by the controller, which alone knows the progress of the other nodes; other nodes
      forward the request to it
Versions
    v1  when a replica last fetched, and when it last had every entry
    v2  error messages, directories (none here), and the addresses of the nodes
"""

from collections.abc import Iterable
from typing import Final

from quipu.broker.quorum import QuorumView, ReplicaView
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE
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
    response = DescribeQuorumResponse(
        topics=context.array(QuorumTopicData), nodes=_nodes(broker, view))
    for topic in request.topics:
        partitions = context.array(QuorumPartitionData)
        for partition in topic.partitions:
            await context.pause()
            partitions.append(_partition(topic.topic_name, partition.partition_index, view))
        response.topics.append(
            QuorumTopicData(topic_name=topic.topic_name, partitions=partitions))
    return response


def _partition(topic: str, index: int, view: QuorumView) -> QuorumPartitionData:
    if (topic, index) != (METADATA_TOPIC, 0):
        return QuorumPartitionData(
            partition_index=index, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"the one quorum is partition 0 of {METADATA_TOPIC}")
    return QuorumPartitionData(
        partition_index=index,
        leader_id=NO_NODE if view.leader is None else view.leader,
        leader_epoch=view.term,
        high_watermark=view.commit_index + 1,  # the offset after the last one, as Kafka counts
        current_voters=_replicas(view.voters),
        observers=_replicas(view.observers))


def _replicas(views: Iterable[ReplicaView]) -> list[ReplicaState]:
    return [
        ReplicaState(replica_id=view.node_id, log_end_offset=view.log_end,
                     last_fetch_timestamp=view.last_fetch_ms,
                     last_caught_up_timestamp=view.last_caught_up_ms)
        for view in views]


def _nodes(broker: Broker, view: QuorumView) -> list[Node]:
    """Voters that other nodes can reach."""
    brokers = broker.cluster.state.brokers
    found = [brokers[voter.node_id] for voter in view.voters if voter.node_id in brokers]
    return [
        Node(node_id=known.node_id, listeners=[
            Listener(name=LISTENER_NAME, host=known.peer_host, port=known.peer_port)])
        for known in found if known.peer_host]
