"""AlterConfigs in every version: the whole set at once."""

import pytest

from quipu.broker.handlers import k33_alter_configs
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.wire.messages.k33_alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


def a_request(value: str | None, *, validate_only: bool = False) -> AlterConfigsRequest:
    configs = [AlterableConfig(name="flush.ms", value=value)]
    return AlterConfigsRequest(validate_only=validate_only, resources=[
        AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
        for name in ("a", "x")])


@pytest.mark.parametrize("version", versions(AlterConfigsRequest))
@looped
async def test_what_is_not_named_is_inherited_again(version: int) -> None:
    """K5, K12: AlterConfigs replaces; each resource has its own result."""
    broker = await a_broker(NewTopic("a", configs=[("retention.ms", "5")]))

    response = await ask(broker, k33_alter_configs, a_request("7"), version)

    assert [(r.resource_type, r.resource_name, r.error_code) for r in response.responses] == [
        (2, "a", Code.NONE), (2, "x", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert response.responses[0].error_message is None
    assert dict(broker.cluster.state.topics["a"].configs) == {"flush.ms": "7"}


@pytest.mark.parametrize(("value", "code"), [
    ("seven", Code.INVALID_CONFIG), (None, Code.INVALID_REQUEST)])
@looped
async def test_a_bad_value_changes_nothing(value: str | None, code: Code) -> None:
    broker = await a_broker(NewTopic("a", configs=[("retention.ms", "5")]))

    response = await ask(broker, k33_alter_configs, a_request(value), 2)

    assert response.responses[0].error_code == code
    assert dict(broker.cluster.state.topics["a"].configs) == {"retention.ms": "5"}


@looped
async def test_validate_only_changes_nothing() -> None:
    broker = await a_broker(NewTopic("a", configs=[("retention.ms", "5")]))

    response = await ask(broker, k33_alter_configs, a_request("7", validate_only=True), 2)

    assert response.responses[0].error_code == Code.NONE
    assert dict(broker.cluster.state.topics["a"].configs) == {"retention.ms": "5"}
