"""AlterPartitionReassignments — API key 45, versions 0-1.

Behaviour
    * moves partitions from their chain to another; the replicas must be exactly the nodes of one
      chain, in any order, else INVALID_REPLICA_ASSIGNMENT names the existing chains
    * without replicas it cancels a move; that is possible until the new chain serves alone
    * responds when the move has begun; ListPartitionReassignments shows it while it goes on
    * carried out by the controller; other nodes forward the request to it
Versions
    v1  the client may forbid that the number of replicas changes
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.controller.reassignment import Reassignment, ReassignmentResult
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    moves = await broker.cluster.controller.alter_reassignments(
        [Reassignment(topic.name, partition.partition_index, partition.replicas)
         for topic in request.topics for partition in topic.partitions],
        factor_may_change=request.allow_replication_factor_change)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=await _by_topic(moves, context))


async def _by_topic(
    moves: list[ReassignmentResult], context: Context
) -> list[ReassignableTopicResponse]:
    results: dict[str, ReassignableTopicResponse] = {}
    for move in moves:
        await context.pause()
        result = results.setdefault(move.topic, ReassignableTopicResponse(name=move.topic))
        result.partitions.append(ReassignablePartitionResponse(
            partition_index=move.partition, error_code=move.code,
            error_message=move.message))
    return list(results.values())
