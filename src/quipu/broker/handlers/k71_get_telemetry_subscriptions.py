"""GetTelemetrySubscriptions — API key 71, version 0.

Behaviour
    * the subscription is empty: clients push no metrics
    * gives a client without an instance id a new one, which the client keeps until it ends
    * the subscription is the same for all clients, and its id never changes
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

SUBSCRIPTION_ID: Final = 0
PUSH_INTERVAL_MS: Final = 300_000  # how often clients ask whether the subscription has changed
TELEMETRY_BYTES_MAX: Final = 1 << 20
COMPRESSIONS: Final = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: the best first


def handle(
    broker: Broker, request: GetTelemetrySubscriptionsRequest, context: Context
) -> GetTelemetrySubscriptionsResponse:
    """Respond with the empty subscription."""
    del context
    is_new = request.client_instance_id == ZERO_UUID
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=broker.rng.uuid() if is_new else request.client_instance_id,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval=PUSH_INTERVAL_MS,
        telemetry_max_bytes=TELEMETRY_BYTES_MAX,
        delta_temporality=True,
        requested_metrics=[],
    )
