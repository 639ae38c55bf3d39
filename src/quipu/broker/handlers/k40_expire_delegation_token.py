"""ExpireDelegationToken — API key 40, versions 1-2.

Behaviour
    * there are no tokens (k38_create_delegation_token)
Versions
    v2  flexible encoding
"""

from quipu.broker.handlers.k38_create_delegation_token import NO_TIME, token_error
from quipu.broker.serving.context import Broker, Context
from quipu.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


def handle(
    broker: Broker, request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse:
    del broker, request
    return ExpireDelegationTokenResponse(
        error_code=token_error(context), expiry_timestamp=NO_TIME)
