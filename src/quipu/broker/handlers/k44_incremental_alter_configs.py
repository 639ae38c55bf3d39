"""IncrementalAlterConfigs — API key 44, versions 0-1.

Behaviour
    * sets (0), clears (1), appends to (2) or subtracts from (3) single settings; the rest stay
    * a resource changes as a whole or not at all; responds per resource
    * with validate_only it responds as if settings were changed, and changes none
    * carried out by the controller; other nodes forward the request to it
    * levels of loggers (resource type 8) are changed at once, by the node that is asked, and until
      it ends
Versions
    v1  flexible
"""

from collections import Counter
from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.handlers import Forward
from quipu.broker.handlers.k32_describe_configs import check_node
from quipu.broker.observing.loggers import check_level, set_level
from quipu.broker.serving.context import Broker, Context
from quipu.controller.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    check_changes,
)
from quipu.controller.resources import ResourceType
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ON_CONTROLLER: Final = True
BROKER_LOGGER: Final = ResourceType.BROKER_LOGGER


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


async def handle_here(
    broker: Broker, request: IncrementalAlterConfigsRequest, forward: Forward
) -> IncrementalAlterConfigsResponse | None:
    """Change loggers of this node, and let the controller change the rest; None if none is named.

    The controller goes first: an error of it is one of the whole request, which may be sent again.
    """
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    if not loggers:
        return None
    rest = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    responses = []
    if rest:
        forwarded = await forward(IncrementalAlterConfigsRequest(
            resources=rest, validate_only=request.validate_only))
        assert isinstance(forwarded, IncrementalAlterConfigsResponse)
        responses = forwarded.responses
    names = Counter(each.resource_name for each in loggers)
    return IncrementalAlterConfigsResponse(responses=[
        *(_alter_loggers(broker, each, is_repeated=names[each.resource_name] > 1,
                         validate_only=request.validate_only) for each in loggers), *responses])


def _alter_loggers(
    broker: Broker, resource: AlterConfigsResource, *, is_repeated: bool, validate_only: bool
) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(
        error_message=None, resource_type=resource.resource_type,
        resource_name=resource.resource_name)
    try:
        check_node(broker, resource.resource_name)
        if is_repeated:
            raise RequestError("a resource may be named once in a request",
                               code=Code.INVALID_REQUEST)
        levels = _new_levels(resource)
        for name, level in levels.items():
            check_level(name, level)
    except QuipuError as error:
        result.error_code, result.error_message = code_of(error), str(error)
        return result
    if not validate_only:
        for name, level in levels.items():
            set_level(name, level)
    return result


def _new_levels(resource: AlterConfigsResource) -> dict[str, str | None]:
    check_changes(_alteration(resource).changes)
    for change in resource.configs:
        if change.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise RequestError(f"{change.name[:80]}: a level can be set or deleted, and is no list",
                               code=Code.INVALID_REQUEST)
    return {change.name: change.value if change.config_operation == ConfigOperation.SET else None
            for change in resource.configs}


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
