"""RemoveRaftVoter — API key 81, version 0.

Behaviour
    * removes a node from the voters of the quorum; it continues as an observer
    * before the controller is removed, it transfers leadership: NOT_CONTROLLER, ask again
    * the last voter cannot be removed; directories are ignored
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.handlers.k80_add_raft_voter import INCONSISTENT_CLUSTER_ID
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from quipu.wire.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

ON_CONTROLLER: Final = True
VOTER_NOT_FOUND: Final = 127


async def handle(
    broker: Broker, request: RemoveRaftVoterRequest, context: Context
) -> RemoveRaftVoterResponse:
    del context
    if request.cluster_id not in (None, broker.cluster.state.cluster_id):
        return RemoveRaftVoterResponse(
            error_code=INCONSISTENT_CLUSTER_ID,
            error_message=f"this is cluster {broker.cluster.state.cluster_id}")
    voters, voter = broker.cluster.voters, NodeId(request.voter_id)
    if voter not in voters:
        return RemoveRaftVoterResponse(
            error_code=VOTER_NOT_FOUND, error_message=f"node {voter} is no voter: {list(voters)}")
    if len(voters) == 1:
        return RemoveRaftVoterResponse(
            error_code=Code.INVALID_REQUEST, error_message=f"node {voter} is the last voter")
    try:
        await broker.cluster.change_voters(set(voters) - {voter})
    except RequestError as error:
        return RemoveRaftVoterResponse(error_code=code_of(error), error_message=str(error))
    return RemoveRaftVoterResponse(error_code=Code.NONE)
