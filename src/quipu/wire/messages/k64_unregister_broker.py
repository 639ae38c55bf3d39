"""UnregisterBroker — API key 64, version 0.

Behaviour
    * removes a broker that will not come back
"""

from quipu.wire.fields import int16, int32, string
from quipu.wire.schema import Request, Response


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    """Remove a broker."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    """Whether it was removed."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
