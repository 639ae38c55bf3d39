"""PushTelemetry — API key 72, version 0.

Behaviour
    * sends the metrics that the broker asked for
Versions
    v0  flexible from the start
"""

from uuid import UUID

from quipu.wire.fields import binary, boolean, int8, int16, int32, uuid
from quipu.wire.schema import Request, Response


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    """A client's metrics, in OpenTelemetry's format."""

    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    """Whether the metrics were accepted."""

    throttle_time: int = int32()
    error_code: int = int16()
