"""GetTelemetrySubscriptions — API key 71, version 0.

Behaviour
    * a client asks which of its metrics the broker wants, how often and how compressed
Versions
    v0  flexible from the start
"""

from uuid import UUID

from quipu.wire.fields import INT8, STRING, array, boolean, int16, int32, uuid
from quipu.wire.schema import Request, Response


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    """What shall I measure?  The id is zero the first time."""

    client_instance_id: UUID = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    """What to measure, and how to hand it in."""

    throttle_time: int = int32()
    error_code: int = int16()
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(INT8)
    push_interval: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(STRING)
