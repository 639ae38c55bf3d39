"""DescribeUserScramCredentials — API key 50, version 0.

Behaviour
    * no user has SCRAM credentials: a user that is named is RESOURCE_NOT_FOUND, or
      DUPLICATE_RESOURCE if it is named twice; the list of all users is empty
Versions
    v0  flexible encoding from the start
"""

from collections import Counter

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    del broker
    response = DescribeUserScramCredentialsResponse(
        results=context.array(DescribeUserScramCredentialsResult))
    for user, count in Counter(user.name for user in request.users or ()).items():
        await context.pause()
        response.results.append(_result(user, count))
    return response


def _result(user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user, error_code=Code.DUPLICATE_RESOURCE,
            error_message=f"user {user[:80]!r} may be named once in a request")
    return DescribeUserScramCredentialsResult(
        user=user, error_code=Code.RESOURCE_NOT_FOUND,
        error_message=f"user {user[:80]!r} has no SCRAM credentials")
