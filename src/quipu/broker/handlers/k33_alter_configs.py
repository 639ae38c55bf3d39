"""AlterConfigs — API key 33, versions 0-2.

Behaviour
    * replaces all settings of a resource: those that the request does not name are inherited again
    * a resource changes as a whole or not at all; answers per resource
    * validate_only answers as if, and changes nothing
    * answered by the controller, whichever node is asked
Versions
    v2  flexible
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.controller.configs import Alteration, Change, Operation, Resource
from quipu.model.errors import QuipuError
from quipu.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: AlterConfigsRequest, context: Context
) -> AlterConfigsResponse:
    answers = await broker.cluster.alter_configs(
        [_alteration(resource) for resource in request.resources],
        validate_only=request.validate_only)
    response = AlterConfigsResponse(responses=context.array(AlterConfigsResourceResponse))
    for answer in answers:
        await context.pause()
        response.responses.append(AlterConfigsResourceResponse(
            error_code=answer.code, error_message=answer.message,
            resource_type=answer.resource.kind, resource_name=answer.resource.name))
    return response


def refuse(request: AlterConfigsRequest, error: QuipuError) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[
        AlterConfigsResourceResponse(
            error_code=error.code, error_message=str(error),
            resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources])


def _alteration(resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        Resource(resource.resource_type, resource.resource_name),
        [Change(config.name, Operation.SET, config.value) for config in resource.configs],
        whole=True,
    )
