"""RenewDelegationToken — API key 39, versions 1-2.

Behaviour
    * sets a later expiry of a token
Versions
    v2  flexible encoding
"""

from quipu.wire.fields import binary, int16, int32, int64
from quipu.wire.schema import Request, Response


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    """Renew this token."""

    hmac: bytes = binary()
    renew_period: int = int64()


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    """When the token expires now."""

    error_code: int = int16()
    expiry_timestamp: int = int64()
    throttle_time: int = int32()
