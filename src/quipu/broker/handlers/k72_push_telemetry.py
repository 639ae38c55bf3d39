"""PushTelemetry — API key 72, version 0.

Behaviour
    * keeps nothing: there is no subscription (see k71_get_telemetry_subscriptions)
    * refuses a push without an instance id, for another subscription, or larger than allowed, so
      that the client asks for the subscription again
    * accepts the last push of a client that terminates, as any other
"""

from typing import Final

from quipu.broker.handlers.k71_get_telemetry_subscriptions import (
    COMPRESSIONS,
    SUBSCRIPTION_ID,
    TELEMETRY_BYTES_MAX,
)
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse

UNCOMPRESSED: Final = 0


def handle(
    broker: Broker, request: PushTelemetryRequest, context: Context
) -> PushTelemetryResponse:
    """Check the push, and keep nothing."""
    del broker, context
    return PushTelemetryResponse(error_code=_error_code(request))


def _error_code(request: PushTelemetryRequest) -> Code:
    if request.client_instance_id == ZERO_UUID:
        return Code.INVALID_REQUEST
    if request.subscription_id != SUBSCRIPTION_ID:
        return Code.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (UNCOMPRESSED, *COMPRESSIONS):
        return Code.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > TELEMETRY_BYTES_MAX:
        return Code.TELEMETRY_TOO_LARGE
    return Code.NONE
