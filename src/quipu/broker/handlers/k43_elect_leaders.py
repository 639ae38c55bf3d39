"""ElectLeaders — API key 43, versions 0-2.

Behaviour
    * an election is one of a chain: all partitions on it get the same leader
    * preferred (0): the chain's first node by number leads again, if it serves
    * unclean (1): where no serving member is up, the first member that is serves alone; records
      that it has not got are lost, which is why nothing but this request does it
    * no list of partitions asks for all; of those, only the ones with an election are told
    * answered by the controller, whichever node is asked
Versions
    v1  the type of the election, and an error of the whole request      v2  flexible
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.controller.elections import ElectAnswer, ElectionType
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: ElectLeadersRequest, context: Context
) -> ElectLeadersResponse:
    if request.election_type not in list(ElectionType):
        raise RequestError(f"unknown election type {request.election_type}",
                           code=Code.INVALID_REQUEST)
    wanted = None
    if request.topic_partitions is not None:
        wanted = [TopicPartition(each.topic, partition) for each in request.topic_partitions
                  for partition in each.partitions]
    answers = await broker.cluster.changes.elect_leaders(
        ElectionType(request.election_type), wanted)
    return ElectLeadersResponse(replica_election_results=await _by_topic(answers, context))


def refuse(request: ElectLeadersRequest, error: QuipuError) -> ElectLeadersResponse:
    """Tell every partition that all failed: v0 has no other place for it."""
    return ElectLeadersResponse(error_code=error.code, replica_election_results=[
        ReplicaElectionResult(topic=each.topic, partition_result=[
            PartitionResult(partition_id=partition, error_code=error.code, error_message=str(error))
            for partition in each.partitions])
        for each in request.topic_partitions or ()])


async def _by_topic(answers: list[ElectAnswer], context: Context) -> list[ReplicaElectionResult]:
    results: dict[str, ReplicaElectionResult] = {}
    for answer in answers:
        await context.pause()
        result = results.setdefault(answer.topic, ReplicaElectionResult(topic=answer.topic))
        result.partition_result.append(PartitionResult(
            partition_id=answer.partition, error_code=answer.code, error_message=answer.message))
    return list(results.values())
