"""ExtendChain — API key 10002, version 0.  Quipu's own.

Behaviour
    * adds a node to the end of a chain; it is sent every record, and serves when it has caught up
    * answers when it has begun; DescribeChains tells when it serves
    * answered by the controller, whichever node is asked
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.broker.handlers.k10000_describe_chains import described
from quipu.controller.chains import view
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: ExtendChainRequest, context: Context
) -> ExtendChainResponse:
    del context
    chain = await broker.cluster.changes.extend_chain(request.name, request.node_name)
    return ExtendChainResponse(chain=described(view(broker.cluster.state, chain)))
