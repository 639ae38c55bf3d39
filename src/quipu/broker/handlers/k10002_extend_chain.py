"""ExtendChain — API key 10002, version 0.  Quipu's own.

Behaviour
    * adds a node to the end of a chain; it gets every record, and serves when it has caught up
    * responds when the node has begun to sync; DescribeChains shows when it serves
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final

from quipu.broker.handlers.k10000_describe_chains import described
from quipu.broker.serving.context import Broker, Context
from quipu.controller.chains import view
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: ExtendChainRequest, context: Context
) -> ExtendChainResponse:
    chain = await broker.cluster.controller.extend_chain(request.name, request.node_name)
    return ExtendChainResponse(chain=described(view(broker.cluster.state, chain), context.listener))
