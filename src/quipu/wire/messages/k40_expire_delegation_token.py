"""ExpireDelegationToken — API key 40, versions 1-2.

Behaviour
    * sets an earlier expiry of a token; a negative period removes it at once
Versions
    v2  flexible encoding
"""

from quipu.wire.fields import binary, int16, int32, int64
from quipu.wire.schema import Request, Response


class ExpireDelegationTokenRequest(Request, key=40, versions="1-2", flexible="2+"):
    """Let this token expire."""

    hmac: bytes = binary()
    expiry_time_period: int = int64()


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    """When the token expires."""

    error_code: int = int16()
    expiry_timestamp: int = int64()
    throttle_time: int = int32()
