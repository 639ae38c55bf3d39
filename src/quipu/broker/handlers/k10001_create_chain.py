"""CreateChain — API key 10001, version 0.  Quipu's own.

Behaviour
    * makes a chain of nodes that are up and belong to no other, in the order of their numbers
    * a chain of exactly these nodes that exists already is the response; another one of that name
      is DUPLICATE_RESOURCE
    * an empty list of nodes means all nodes that are named `<chain>-<number>`
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final

from quipu.broker.handlers.k10000_describe_chains import described
from quipu.broker.serving.context import Broker, Context
from quipu.controller.chains import view
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: CreateChainRequest, context: Context
) -> CreateChainResponse:
    chain = await broker.cluster.controller.create_chain(
        request.name, request.node_names, validate_only=request.validate_only)
    return CreateChainResponse(chain=described(view(broker.cluster.state, chain), context.listener))
