"""AlterUserScramCredentials — API key 51, version 0.

Behaviour
    * clients do not authenticate by SCRAM: credentials that are to be set are INVALID_REQUEST, and
      the message says so; those that are to be removed are RESOURCE_NOT_FOUND
    * responds per user; one that is named twice is DUPLICATE_RESOURCE
Versions
    v0  flexible encoding from the start
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

MECHANISMS: Final = (1, 2)  # SCRAM-SHA-256 and SCRAM-SHA-512

NOT_SUPPORTED: Final = (
    "SCRAM is not supported: nothing was changed, and no listener asks clients for a user and a "
    "password")


class _Change(NamedTuple):
    user: str
    mechanism: int
    is_deletion: bool


async def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    del broker
    changes = list(_changes(request))
    named = Counter((change.user, change.mechanism) for change in changes)
    response = AlterUserScramCredentialsResponse(
        results=context.array(AlterUserScramCredentialsResult))
    firsts: dict[str, _Change] = {}
    for change in changes:
        firsts.setdefault(change.user, change)
    for change in firsts.values():
        await context.pause()
        is_repeated = named[change.user, change.mechanism] > 1
        code, why = _error(change, is_repeated=is_repeated)
        response.results.append(AlterUserScramCredentialsResult(
            user=change.user, error_code=code, error_message=why))
    return response


def _changes(request: AlterUserScramCredentialsRequest) -> Iterator[_Change]:
    for deletion in request.deletions:
        yield _Change(deletion.name, deletion.mechanism, is_deletion=True)
    for upsertion in request.upsertions:
        yield _Change(upsertion.name, upsertion.mechanism, is_deletion=False)


def _error(change: _Change, *, is_repeated: bool) -> tuple[Code, str]:
    if not change.user:
        return Code.UNACCEPTABLE_CREDENTIAL, "a user has a name"
    if change.mechanism not in MECHANISMS:
        return (Code.UNSUPPORTED_SASL_MECHANISM,
                f"unknown mechanism {change.mechanism}: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512")
    if is_repeated:
        return Code.DUPLICATE_RESOURCE, "a credential may be named once in a request"
    if change.is_deletion:
        return Code.RESOURCE_NOT_FOUND, f"user {change.user[:80]!r} has no SCRAM credentials"
    return Code.INVALID_REQUEST, NOT_SUPPORTED
