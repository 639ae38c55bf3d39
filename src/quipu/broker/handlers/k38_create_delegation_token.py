"""CreateDelegationToken — API key 38, versions 1-3.

Behaviour
    * there are no tokens: DELEGATION_TOKEN_AUTH_DISABLED, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
      for a client that has not authenticated, as in Kafka
Versions
    v2  flexible encoding      v3  owner and requester of a token
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.model.principals import ANONYMOUS, Principal
from quipu.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

NO_TIME: Final = -1


def handle(
    broker: Broker, request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    del broker
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=token_error(context),
        principal_type=owner.type, principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=NO_TIME, expiry_timestamp=NO_TIME, max_timestamp=NO_TIME)


def token_error(context: Context) -> Code:
    """The error of a request about tokens."""
    if context.principal == ANONYMOUS:
        return Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return Code.DELEGATION_TOKEN_AUTH_DISABLED
