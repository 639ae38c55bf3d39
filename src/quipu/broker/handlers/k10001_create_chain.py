"""CreateChain — API key 10001, version 0.  Quipu's own.

Behaviour
    * makes a chain of nodes that are up and belong to no other, in the order of their numbers
    * no names of nodes stand for all that are called `<chain>-<number>`
    * answered by the controller, whichever node is asked
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.broker.handlers.k10000_describe_chains import described
from quipu.controller.chains import view
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: CreateChainRequest, context: Context
) -> CreateChainResponse:
    del context
    chain = await broker.cluster.changes.create_chain(
        request.name, request.node_names, validate_only=request.validate_only)
    return CreateChainResponse(chain=described(view(broker.cluster.state, chain)))
