"""ListPartitionReassignments — API key 46, version 0.

Behaviour
    * responds with the partitions that are moving from one chain to another
    * no list of topics asks for all; partitions that do not exist, or do not move, are left out
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(topic.name, partition) for topic in request.topics
                  for partition in topic.partition_indexes]
    topics: dict[str, OngoingTopicReassignment] = {}
    for moving in await broker.cluster.controller.list_reassignments(wanted):
        await context.pause()
        topic = topics.setdefault(moving.topic, OngoingTopicReassignment(name=moving.topic))
        topic.partitions.append(OngoingPartitionReassignment(
            partition_index=moving.partition, replicas=list(moving.replicas),
            adding_replicas=list(moving.adding), removing_replicas=list(moving.removing)))
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
