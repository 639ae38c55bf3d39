"""AlterUserScramCredentials — API key 51, version 0.

Behaviour
    * sets and removes SCRAM credentials of users
Versions
    v0  flexible encoding from the start
"""

from quipu.wire.fields import array, binary, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ScramCredentialDeletion(Struct):
    """A credential to remove."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """A credential to set: the salted password, never the password."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    """Change credentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """Whether the credentials of one user were changed."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    """The result for each user."""

    throttle_time: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
