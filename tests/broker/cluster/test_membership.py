"""A node's lease: from when it counts, and what ends it."""

from typing import Any, cast
from uuid import UUID

from quipu.broker.cluster.controller_channel import ControllerChannel
from quipu.broker.cluster.membership import LEASE_RATIO, OVER, Membership
from quipu.broker.cluster.requests import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from quipu.controller.state import ClusterState
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import ManualClock
from quipu.wire.schema import Message
from tests.looped import looped

SESSION_MS = 6000
LEASE_MS = 1500


class SlowController:
    """Answers every heartbeat after `delay_ms`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.delay_ms = 0
        self.is_fenced = False

    async def ask(self, request: Message, response: type, *, timeout_seconds: float) -> Any:
        assert isinstance(request, BrokerHeartbeatRequest)
        assert response is BrokerHeartbeatResponse
        assert timeout_seconds > 0
        self._clock.advance_ms(self.delay_ms)
        return BrokerHeartbeatResponse(is_fenced=self.is_fenced, session_ms=SESSION_MS)


def a_member() -> tuple[Membership, SlowController, ManualClock]:
    clock = ManualClock()
    controller = SlowController(clock)
    membership = Membership(
        BrokerSettings(broker_session_timeout_ms=SESSION_MS, broker_lease_ms=LEASE_MS), UUID(int=1),
        cast("ControllerChannel", controller), clock, state=ClusterState)
    return membership, controller, clock


@looped
async def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    """V15, V5, broker.cluster.B1: the controller counts from when the heartbeat came, so a response
    that takes its time must not lengthen the lease: others may lead when the session is over.
    """
    for delay_ms in (0, 1000, 5900):
        membership, controller, clock = a_member()
        clock.advance_ms(10_000)
        sent = clock.monotonic()
        controller.delay_ms = delay_ms

        await membership._beat()

        assert membership.lease_until == sent + LEASE_RATIO * LEASE_MS / 1000
        assert membership.lease_until < sent + LEASE_MS / 1000


@looped
async def test_a_fenced_node_has_no_lease() -> None:
    """V15, broker.cluster.B3."""
    membership, controller, _ = a_member()
    await membership._beat()
    assert membership.lease_until > OVER
    controller.is_fenced = True

    await membership._beat()

    assert membership.lease_until == OVER
