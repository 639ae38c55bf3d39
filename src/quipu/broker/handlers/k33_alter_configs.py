"""AlterConfigs — API key 33, versions 0-2.

Behaviour
    * replaces all settings of a resource: those that the request does not name are inherited again
    * a resource changes as a whole or not at all; responds per resource
    * with validate_only it responds as if settings were changed, and changes none
    * carried out by the controller; other nodes forward the request to it
Versions
    v2  flexible
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.configs import ConfigAlteration, ConfigChange, ConfigOperation, ConfigResource
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
    results = await broker.cluster.controller.alter_configs(
        [_alteration(resource) for resource in request.resources],
        validate_only=request.validate_only)
    response = AlterConfigsResponse(responses=context.array(AlterConfigsResourceResponse))
    for result in results:
        await context.pause()
        response.responses.append(AlterConfigsResourceResponse(
            error_code=result.code, error_message=result.message,
            resource_type=result.resource.kind, resource_name=result.resource.name))
    return response


def refuse(request: AlterConfigsRequest, error: QuipuError) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[
        AlterConfigsResourceResponse(
            error_code=code_of(error), error_message=str(error),
            resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources])


def _alteration(resource: AlterConfigsResource) -> ConfigAlteration:
    return ConfigAlteration(
        ConfigResource(resource.resource_type, resource.resource_name),
        [ConfigChange(config.name, ConfigOperation.SET, config.value)
         for config in resource.configs],
        whole=True,
    )
