"""DeleteAcls — API key 31, versions 1-3.

Behaviour
    * there are no access rules: SECURITY_DISABLED for each filter (k29_describe_acls)
Versions
    v2  flexible encoding      v3  users as resources
"""

from quipu.broker.handlers.k29_describe_acls import NO_AUTHORIZER
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(
    broker: Broker, request: DeleteAclsRequest, context: Context
) -> DeleteAclsResponse:
    del broker
    response = DeleteAclsResponse(filter_results=context.array(DeleteAclsFilterResult))
    for _ in request.filters:
        await context.pause()
        response.filter_results.append(DeleteAclsFilterResult(
            error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER))
    return response
