"""UnregisterBroker — API key 64, version 0.

Behaviour
    * forgets a broker that will not come back; it must be down, and a member of no chain
    * answered by the controller, whichever node is asked
"""

from typing import Final

from quipu.broker.context import Broker, Context
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
    await broker.cluster.changes.unregister_broker(NodeId(request.broker_id))
    return UnregisterBrokerResponse()
