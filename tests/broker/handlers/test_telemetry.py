"""The two telemetry APIs: clients are asked for nothing, and politely."""

from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from quipu.broker.handlers import k71_get_telemetry_subscriptions as subscriptions
from quipu.broker.handlers import k72_push_telemetry as push
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.runtime.rng import SeededRng
from quipu.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from quipu.wire.messages.k72_push_telemetry import PushTelemetryRequest

CONTEXT = Context(0, 1, "client", "127.0.0.1")
CLIENT = UUID(int=7)


def broker() -> Broker:
    return cast("Broker", SimpleNamespace(rng=SeededRng(1)))


def subscribe(client: UUID) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return subscriptions.handle(broker(), request, CONTEXT)


def test_a_new_client_is_given_an_id_and_an_old_one_keeps_its_own() -> None:
    """K1: librdkafka and the Java client ask this right after they have connected."""
    assert subscribe(ZERO_UUID).client_instance_id != ZERO_UUID
    assert subscribe(CLIENT).client_instance_id == CLIENT


def test_no_metrics_are_asked_for() -> None:
    """K1: an empty list is a subscription to nothing; the client asks again some time."""
    response = subscribe(CLIENT)

    assert response.error_code == Code.NONE
    assert (response.requested_metrics, response.subscription_id) == ([], 0)
    assert response.push_interval > 0
    assert 0 < response.telemetry_max_bytes <= 1 << 20
    assert response == GetTelemetrySubscriptionsResponse.decode(response.encode(0), 0)


CASES = [
    ("a push as it should be", PushTelemetryRequest(client_instance_id=CLIENT), Code.NONE),
    ("the last push of a client",
     PushTelemetryRequest(client_instance_id=CLIENT, terminating=True), Code.NONE),
    ("no client id", PushTelemetryRequest(), Code.INVALID_REQUEST),
    ("another subscription",
     PushTelemetryRequest(client_instance_id=CLIENT, subscription_id=1),
     Code.UNKNOWN_SUBSCRIPTION_ID),
    ("an unknown compression",
     PushTelemetryRequest(client_instance_id=CLIENT, compression_type=9),
     Code.UNSUPPORTED_COMPRESSION_TYPE),
    ("more than was allowed",
     PushTelemetryRequest(client_instance_id=CLIENT, metrics=bytes((1 << 20) + 1)),
     Code.TELEMETRY_TOO_LARGE),
]


@pytest.mark.parametrize(
    ("request_", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_push_is_judged(request_: PushTelemetryRequest, code: Code) -> None:
    """K1, K8: a client whose push is refused asks for its subscription again."""
    assert push.handle(broker(), request_, CONTEXT).error_code == code
