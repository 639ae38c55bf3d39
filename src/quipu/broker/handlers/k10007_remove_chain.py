"""RemoveChain — API key 10007, version 0.  Quipu's own.

Behaviour
    * takes out a chain, or one node of it, for good; partitions there move elsewhere first: those
      of a chain to other chains, those of a node to the one that replaces it, or they go on with
      fewer replicas
    * responds at once with how far it is, and does whatever is due whenever it is sent again; a
      request that does not say where partitions may go is INVALID_REQUEST with the choices
    * the nodes stay registered, and in the quorum if they vote: see UnregisterBroker and
      RemoveRaftVoter
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.controller.removal import Removal
from quipu.model.ids import NO_NODE
from quipu.wire.messages.k10007_remove_chain import RemoveChainRequest, RemoveChainResponse

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: RemoveChainRequest, context: Context
) -> RemoveChainResponse:
    del context
    progress = await broker.cluster.controller.remove_chain(Removal(
        chain=request.name, node=request.node_name or "", replace_by=request.replace_by or "",
        drain=request.drain, shorten=request.shorten))
    node = broker.cluster.state.find_broker(request.node_name) if request.node_name else None
    return RemoveChainResponse(
        is_done=progress.is_done, partitions_left=progress.partitions_left,
        partitions_moving=progress.partitions_moving, trouble=progress.trouble,
        node_id=node.node_id if node is not None else NO_NODE,
        node_is_up=node is not None and not node.fenced)
