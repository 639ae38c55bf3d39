"""IncrementalAlterConfigs — API key 44, versions 0-1.

Behaviour
    * sets (0), clears (1), appends to (2) or subtracts from (3) single settings; the rest stay
    * a resource changes as a whole or not at all; responds per resource
    * with validate_only it responds as if settings were changed, and changes none
    * carried out by the controller; other nodes forward the request to it
Versions
    v1  flexible
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigResource
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
    results = await broker.cluster.controller.alter_configs(
        [_alteration(resource) for resource in request.resources],
        validate_only=request.validate_only)
    response = IncrementalAlterConfigsResponse(
        responses=context.array(AlterConfigsResourceResponse))
    for result in results:
        await context.pause()
        response.responses.append(AlterConfigsResourceResponse(
            error_code=result.code, error_message=result.message,
            resource_type=result.resource.kind, resource_name=result.resource.name))
    return response


def refuse(
    request: IncrementalAlterConfigsRequest, error: QuipuError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[
        AlterConfigsResourceResponse(
            error_code=code_of(error), error_message=str(error),
            resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources])


def _alteration(resource: AlterConfigsResource) -> ConfigAlteration:
    return ConfigAlteration(
        ConfigResource(resource.resource_type, resource.resource_name),
        [ConfigChange(config.name, config.config_operation, config.value)
         for config in resource.configs],
    )
