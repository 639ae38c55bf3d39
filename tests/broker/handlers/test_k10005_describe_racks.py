"""DescribeRacks: the controller responds, through any node, and the next controller the same."""

from typing import Any, cast

from quipu.broker.observing.placement_samples import of_controller
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.controller.racks import RackState
from quipu.model.ids import NodeId
from quipu.wire.messages.k10005_describe_racks import DescribeRacksRequest, DescribeRacksResponse
from tests.broker.cluster.rig import Rig


def racks(rig: Rig, node_id: int) -> DescribeRacksResponse:
    """What a client of this node gets."""
    request, broker = DescribeRacksRequest(), cast("Broker", rig.program(node_id).broker)
    asked = forwarding.ClientRequest(request, request.encode(0), Context(0, 1, "c", "::1"))
    response: Any = rig.ask(node_id, lambda _: forwarding.forward(broker, asked))
    assert isinstance(response, forwarding.ForwardedResponse), response
    return DescribeRacksResponse.decode(response.body, 0)


def shows_placements(rig: Rig, node_id: NodeId) -> bool:
    return bool(of_controller(cast("Broker", rig.program(node_id).broker)))


def test_every_node_passes_on_what_the_controller_knows() -> None:
    """D26, D28: one answer, whoever is asked; and metrics of one node alone."""
    rig = Rig(names=("a-0", "a-1", "a-2", "a-3", "a-4"))
    rig.boot()
    controller, lost = rig.controller, rig.others[0]
    found = [racks(rig, node_id) for node_id in rig.machines]
    assert all(each == found[0] for each in found)
    assert found[0].controller_id == controller
    assert (found[0].effective_rf, found[0].auto_reconcile) == (5, True)
    assert [(rack.name, rack.state, rack.brokers) for rack in found[0].racks] == [
        (f"rack-{node_id}", RackState.HEALTHY, [node_id]) for node_id in sorted(rig.machines)]
    assert [node_id for node_id in rig.machines if shows_placements(rig, node_id)] == [controller]

    rig.kill(lost)
    rig.until(lambda: rig.cluster(controller).state.brokers[lost].fenced, "fenced")
    before = _rack(racks(rig, controller), lost)
    assert (before.state, before.eligible_brokers) == (RackState.DEGRADED, [])
    assert before.degraded_since_ms > 0

    rig.kill(controller)
    left = [node_id for node_id in rig.machines if node_id not in (controller, lost)]
    rig.until(lambda: rig.cluster(left[0]).state.brokers[controller].fenced, "fenced")
    after = racks(rig, left[0])
    assert after.controller_id in left
    assert _rack(after, lost) == before  # with the same deadline
    assert [node_id for node_id in left if shows_placements(rig, node_id)] == [
        after.controller_id]
    rig.world.end()


def _rack(response: DescribeRacksResponse, node_id: int) -> Any:
    (rack,) = (each for each in response.racks if each.brokers == [node_id])
    return rack
