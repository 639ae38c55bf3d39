"""ListConfigResources: what has settings, by type."""



import pytest

from quipu.broker.handlers import (
    k74_list_config_resources,
)
from quipu.controller.resources import ResourceType
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.broker.clusters import a_broker, ask
from tests.broker.config_requests import alter, resource
from tests.looped import looped

SET = 0
TIMEOUT = "consumer.session.timeout.ms"


@pytest.mark.parametrize(("version", "kinds", "expected"), [
    (0, [], {(16, "m")}),
    (1, [], {(2, "t"), (4, "1"), (8, "1"), (16, "m"), (32, "g")}),
    (1, [32, 16, 32], {(16, "m"), (32, "g")}),
    (1, [8], {(8, "1")}),
])
@looped
async def test_resources_are_listed_by_type(
    version: int, kinds: list[int], expected: set[tuple[int, str]]
) -> None:
    """K5: v0 knows client metrics only; no types mean all."""
    broker = await a_broker(NewTopic("t"))
    await alter(broker, resource(32, "g", (TIMEOUT, SET, "50000")),
                resource(16, "m", ("interval.ms", SET, "100")))
    response = await ask(broker, k74_list_config_resources,
                         ListConfigResourcesRequest(resource_types=kinds), version)

    listed = [(each.resource_type, each.resource_name) for each in response.config_resources]
    assert (response.error_code, sorted(listed)) == (Code.NONE, sorted(expected))


@pytest.mark.parametrize("kind", [0, 1, 3, 99])
@looped
async def test_a_type_that_does_not_exist_cannot_be_listed(kind: int) -> None:
    """K12: UNSUPPORTED_VERSION, as in Kafka."""
    request = ListConfigResourcesRequest(resource_types=[ResourceType.TOPIC, kind])
    response = await ask(await a_broker(NewTopic("t")), k74_list_config_resources, request, 1)

    assert (response.error_code, response.config_resources) == (Code.UNSUPPORTED_VERSION, [])
