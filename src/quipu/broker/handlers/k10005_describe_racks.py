"""DescribeRacks — API key 10005, version 0.  Quipu's own.

Behaviour
    * responds with the racks by name, their states, and the brokers of each
    * and with the replication factor of diskless topics that follows from them, whether and how
      much the controller has to reconcile
    * carried out by the controller, which alone knows the backlog; other nodes forward the request
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.placements import Placements
from quipu.wire.messages.k10005_describe_racks import (
    DescribedRack,
    DescribeRacksRequest,
    DescribeRacksResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: DescribeRacksRequest, context: Context
) -> DescribeRacksResponse:
    del request
    placements = Placements(broker)
    response = DescribeRacksResponse(
        controller_id=broker.node_id,
        effective_rf=placements.effective_factor,
        auto_reconcile=placements.auto_reconcile,
        rack_unavailable_threshold_ms=placements.threshold_ms,
        reassignment_backlog=broker.cluster.reconciliation.backlog,
        racks=context.array(DescribedRack))
    for rack in placements.racks.values():
        await context.pause()
        response.racks.append(DescribedRack(
            name=rack.name, state=rack.state, degraded_since_ms=rack.degraded_since_ms,
            brokers=list(rack.brokers), eligible_brokers=list(rack.eligible)))
    return response
