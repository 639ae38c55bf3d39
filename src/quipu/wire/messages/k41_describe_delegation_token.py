"""DescribeDelegationToken — API key 41, versions 1-3.

Behaviour
    * returns the tokens of some owners; null means all
Versions
    v2  flexible encoding
    v3  who requested a token (KIP-373)
"""

from quipu.wire.fields import array, binary, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DescribeDelegationTokenOwner(Struct):
    """An owner of tokens."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Request, key=41, versions="1-3", flexible="2+"):
    """Get the tokens of these owners."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="0+")


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew a token."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    """The tokens."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time: int = int32()
