"""AlterPartitionReassignments — API key 45, versions 0-1.

Behaviour
    * moves partitions to any list of registered nodes, whose first is the preferred leader; a list
      that is empty, names a node twice or one that is not registered, or of which none is up, is
      INVALID_REPLICA_ASSIGNMENT; if nothing has to be copied the move is over at once
    * without replicas it cancels a move; that is possible until the new nodes serve alone
    * responds when the move has begun; ListPartitionReassignments shows it while it goes on
    * carried out by the controller; other nodes forward the request to it
Versions
    v1  the client may forbid that the number of replicas changes
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.reassignment import Reassignment, ReassignmentResult
from quipu.model.errors import QuipuError
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
        error_message=None, responses=await _as_named(moves, request, context))


def refuse(
    request: AlterPartitionReassignmentsRequest, error: QuipuError
) -> AlterPartitionReassignmentsResponse:
    """Respond with the error, also for each partition."""
    code, why = code_of(error), str(error)
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=why, responses=[
        ReassignableTopicResponse(name=topic.name, partitions=[
            ReassignablePartitionResponse(
                partition_index=each.partition_index, error_code=code, error_message=why)
            for each in topic.partitions])
        for topic in request.topics])


async def _as_named(
    moves: list[ReassignmentResult], request: AlterPartitionReassignmentsRequest, context: Context
) -> list[ReassignableTopicResponse]:
    """The results in the order of the request."""
    found, results = iter(moves), []
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        for _ in topic.partitions:
            await context.pause()
            move = next(found)
            result.partitions.append(ReassignablePartitionResponse(
                partition_index=move.partition, error_code=move.code,
                error_message=move.message))
        results.append(result)
    return results
