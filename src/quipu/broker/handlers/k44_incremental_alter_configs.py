"""IncrementalAlterConfigs — API key 44, versions 0-1.

Behaviour
    * sets (0), clears (1), appends to (2) or subtracts from (3) single settings; the rest stay
    * a resource changes as a whole or not at all; answers per resource
    * validate_only answers as if, and changes nothing
    * answered by the controller, whichever node is asked
Versions
    v1  flexible
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.controller.configs import Alteration, Change, Resource
from quipu.model.errors import QuipuError
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ON_CONTROLLER: Final = True


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    answers = await broker.cluster.alter_configs(
        [_alteration(resource) for resource in request.resources],
        validate_only=request.validate_only)
    response = IncrementalAlterConfigsResponse(
        responses=context.array(AlterConfigsResourceResponse))
    for answer in answers:
        await context.pause()
        response.responses.append(AlterConfigsResourceResponse(
            error_code=answer.code, error_message=answer.message,
            resource_type=answer.resource.kind, resource_name=answer.resource.name))
    return response


def refuse(
    request: IncrementalAlterConfigsRequest, error: QuipuError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[
        AlterConfigsResourceResponse(
            error_code=error.code, error_message=str(error),
            resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources])


def _alteration(resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        Resource(resource.resource_type, resource.resource_name),
        [Change(config.name, config.config_operation, config.value)
         for config in resource.configs],
    )
