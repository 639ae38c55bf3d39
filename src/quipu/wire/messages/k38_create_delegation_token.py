"""CreateDelegationToken — API key 38, versions 1-3.

Behaviour
    * makes a token by which others can authenticate as the client's principal
Versions
    v2  flexible encoding
    v3  the owner may be another principal than the client's (KIP-373)
"""

from quipu.wire.fields import array, binary, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request, key=38, versions="1-3", flexible="2+"):
    """Make a token; a lifetime of -1 is the broker's default."""

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime: int = int64()


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    """The token, its owner and its times."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time: int = int32()
