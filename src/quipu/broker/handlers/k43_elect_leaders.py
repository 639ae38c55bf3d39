"""ElectLeaders — API key 43, versions 0-2.

Behaviour
    * elects the leader of all partitions that have the same replicas in the same order
    * preferred (0): the first of the replicas leads again, if it serves
    * unclean (1): if no serving member is up, the first member that is up serves alone; records
      that it does not have are lost, so only this request does it
    * results are in the order of the request; a partition that is named twice has two
    * no list of partitions asks for all; of those, only the ones with an election are in the
      response
    * carried out by the controller; other nodes forward the request to it
Versions
    v1  the type of the election, and an error of the whole request      v2  flexible
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.elections import ElectionResult, ElectionType
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
    elections = await broker.cluster.controller.elect_leaders(
        ElectionType(request.election_type), wanted)
    return ElectLeadersResponse(
        replica_election_results=await _by_topic(elections, context) if wanted is None
        else await _as_named(elections, request, context))


def refuse(request: ElectLeadersRequest, error: QuipuError) -> ElectLeadersResponse:
    """Respond with the error for each partition: v0 has no other place for it."""
    return ElectLeadersResponse(error_code=code_of(error), replica_election_results=[
        ReplicaElectionResult(topic=each.topic, partition_result=[
            PartitionResult(partition_id=partition, error_code=code_of(error),
                            error_message=str(error))
            for partition in each.partitions])
        for each in request.topic_partitions or ()])


async def _as_named(
    elections: list[ElectionResult], request: ElectLeadersRequest, context: Context
) -> list[ReplicaElectionResult]:
    """The results in the order of the request, also for what it names twice."""
    found, results = iter(elections), []
    for each in request.topic_partitions or ():
        result = ReplicaElectionResult(topic=each.topic)
        for _ in each.partitions:
            await context.pause()
            result.partition_result.append(_result(next(found)))
        results.append(result)
    return results


def _result(election: ElectionResult) -> PartitionResult:
    return PartitionResult(partition_id=election.partition, error_code=election.code,
                           error_message=election.message)


async def _by_topic(
    elections: list[ElectionResult], context: Context
) -> list[ReplicaElectionResult]:
    results: dict[str, ReplicaElectionResult] = {}
    for election in elections:
        await context.pause()
        result = results.setdefault(election.topic, ReplicaElectionResult(topic=election.topic))
        result.partition_result.append(_result(election))
    return list(results.values())
