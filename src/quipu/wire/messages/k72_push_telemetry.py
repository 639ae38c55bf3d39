"""PushTelemetry — API key 72.
"""

from uuid import UUID

from quipu.wire.fields import binary, boolean, int16, int32, int8, uuid
from quipu.wire.schema import Request, Response


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    """TODO."""

    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    """TODO."""

    throttle_time: int = int32()
    error_code: int = int16()
