"""RenewDelegationToken — API key 39, versions 1-2.

Behaviour
    * there are no tokens (k38_create_delegation_token)
Versions
    v2  flexible encoding
"""

from quipu.broker.handlers.k38_create_delegation_token import NO_TIME, token_error
from quipu.broker.serving.context import Broker, Context
from quipu.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(
    broker: Broker, request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse:
    del broker, request
    return RenewDelegationTokenResponse(
        error_code=token_error(context), expiry_timestamp=NO_TIME)
