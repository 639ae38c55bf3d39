"""DescribeUserScramCredentials — API key 50, version 0.

Behaviour
    * returns which SCRAM credentials users have, without the secrets; no users means all
Versions
    v0  flexible encoding from the start
"""

from quipu.wire.fields import array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class UserName(Struct):
    """A user."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    """Get the credentials of these users."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    """One credential: SCRAM-SHA-256 (1) or SCRAM-SHA-512 (2), and its iterations."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    """The credentials by user."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
