"""AddRaftVoter — API key 80, versions 0-1.

Behaviour
    * makes a running node, which observes the metadata already, a voter of the quorum
    * waits until it has every entry, within the request's timeout; responds when the change is
      committed
    * a node that is not up is refused at once with INVALID_REQUEST, which clients do not retry; so
      is one that fails while the response waits for it
    * directories and listeners are ignored: a node has one of each, and they are known
    * carried out by the controller; other nodes forward the request to it
Versions
    v1  ack_when_committed; the response always waits for the commit
"""

from functools import partial
from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

ON_CONTROLLER: Final = True
INCONSISTENT_CLUSTER_ID: Final = 104
DUPLICATE_VOTER: Final = 126


async def handle(
    broker: Broker, request: AddRaftVoterRequest, context: Context
) -> AddRaftVoterResponse:
    del context
    if request.cluster_id not in (None, broker.cluster.state.cluster_id):
        return AddRaftVoterResponse(
            error_code=INCONSISTENT_CLUSTER_ID,
            error_message=f"this is cluster {broker.cluster.state.cluster_id}")
    voters, voter = broker.cluster.voters, NodeId(request.voter_id)
    if voter in voters:
        return AddRaftVoterResponse(
            error_code=DUPLICATE_VOTER, error_message=f"node {voter} is a voter already")
    try:
        await broker.cluster.change_voters(
            {*voters, voter}, check=partial(_check_up, broker, voter), timeout_seconds=min(
                max(request.timeout, 0), broker.settings.request_max_wait_ms) / 1000)
    except RequestError as error:
        return AddRaftVoterResponse(error_code=code_of(error), error_message=str(error))
    return AddRaftVoterResponse(error_code=Code.NONE)


def _check_up(broker: Broker, voter: NodeId) -> None:
    """Raise unless the node is up: nothing else can make it catch up."""
    known = broker.cluster.state.brokers.get(voter)
    if known is None:
        raise RequestError(f"node {voter} is not known: start it as a node of this cluster first",
                           code=Code.INVALID_REQUEST)
    if known.fenced:
        raise RequestError(f"node {voter} is not up: the controller hears nothing of it, or it is "
                           "starting or stopping", code=Code.INVALID_REQUEST)
