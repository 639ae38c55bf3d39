"""GetTelemetrySubscriptions — API key 71, version 0.

Behaviour
    * returns which metrics the broker wants from a client, how often and how compressed
Versions
    v0  flexible from the start
"""

from uuid import UUID

from quipu.wire.fields import INT8, STRING, array, boolean, int16, int32, uuid
from quipu.wire.schema import Request, Response


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    """Get the metrics to send; the client's id is zero the first time."""

    client_instance_id: UUID = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    """The metrics to send, and how."""

    throttle_time: int = int32()
    error_code: int = int16()
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(INT8)
    push_interval: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(STRING)
