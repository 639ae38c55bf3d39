"""UnregisterBroker — API key 64, version 0.

Behaviour
    * removes a broker that will not come back; it must be down, and a member of no chain: see
      RemoveChain, which takes its node out of the chain, and its partitions to others
    * carried out by the controller; other nodes forward the request to it
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.ids import NodeId
from quipu.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: UnregisterBrokerRequest, context: Context
) -> UnregisterBrokerResponse:
    del context
    await broker.cluster.controller.unregister_broker(NodeId(request.broker_id))
    return UnregisterBrokerResponse()
