"""SaslAuthenticate — API key 36, versions 0-2.

Behaviour
    * carries one message of a SASL mechanism to the broker, and one back
Versions
    v1  lifetime of the session
    v2  flexible encoding
"""

from quipu.wire.fields import binary, int16, int64, string
from quipu.wire.schema import Request, Response


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    """A message of the client's mechanism."""

    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """A message of the broker's mechanism."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime: int = int64("1+")
