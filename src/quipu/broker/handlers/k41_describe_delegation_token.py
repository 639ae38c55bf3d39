"""DescribeDelegationToken — API key 41, versions 1-3.

Behaviour
    * there are no tokens (k38_create_delegation_token)
Versions
    v2  flexible encoding      v3  requester of a token
"""

from quipu.broker.handlers.k38_create_delegation_token import token_error
from quipu.broker.serving.context import Broker, Context
from quipu.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    broker: Broker, request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    del broker, request
    return DescribeDelegationTokenResponse(error_code=token_error(context))
