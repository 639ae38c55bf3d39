"""CreateAcls — API key 30, versions 1-3.

Behaviour
    * there are no access rules: SECURITY_DISABLED for each (k29_describe_acls)
Versions
    v2  flexible encoding      v3  users as resources
"""

from quipu.broker.handlers.k29_describe_acls import NO_AUTHORIZER
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(
    broker: Broker, request: CreateAclsRequest, context: Context
) -> CreateAclsResponse:
    del broker
    response = CreateAclsResponse(results=context.array(AclCreationResult))
    for _ in request.creations:
        await context.pause()
        response.results.append(AclCreationResult(
            error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER))
    return response
