"""AlterPartitionReassignments — API key 45, versions 0-1.

Behaviour
    * moves partitions from their chain to another; the target must be exactly the nodes of one,
      in any order, else INVALID_REPLICA_ASSIGNMENT names the chains that there are
    * without replicas, calls a move off; possible until the new chain serves alone
    * answers when the move has begun; ListPartitionReassignments tells how long it goes on
    * answered by the controller, whichever node is asked
Versions
    v1  the client may forbid that the number of replicas changes
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.controller.reassignment import ReassignAnswer, Reassignment
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
    answers = await broker.cluster.changes.alter_reassignments(
        [Reassignment(topic.name, partition.partition_index, partition.replicas)
         for topic in request.topics for partition in topic.partitions],
        factor_may_change=request.allow_replication_factor_change)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=await _by_topic(answers, context))


async def _by_topic(
    answers: list[ReassignAnswer], context: Context
) -> list[ReassignableTopicResponse]:
    results: dict[str, ReassignableTopicResponse] = {}
    for answer in answers:
        await context.pause()
        result = results.setdefault(answer.topic, ReassignableTopicResponse(name=answer.topic))
        result.partitions.append(ReassignablePartitionResponse(
            partition_index=answer.partition, error_code=answer.code,
            error_message=answer.message))
    return list(results.values())
