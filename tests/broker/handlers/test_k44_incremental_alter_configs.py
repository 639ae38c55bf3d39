"""IncrementalAlterConfigs in every version: one setting at a time."""

import pytest

from quipu.broker.handlers import k44_incremental_alter_configs
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped

SET, DELETE, APPEND, SUBTRACT = range(4)


def a_request(*changes: tuple[str, int, str | None], kind: int = 2, name: str = "a",
              validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value)
               for key, operation, value in changes]
    return IncrementalAlterConfigsRequest(validate_only=validate_only, resources=[
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)])


@pytest.mark.parametrize("version", versions(IncrementalAlterConfigsRequest))
@looped
async def test_each_operation_does_its_work(version: int) -> None:
    """K5, K12: set, delete, append and subtract; what is not named stays."""
    broker = await a_broker(NewTopic("a", configs=[
        ("retention.ms", "5"), ("segment.ms", "600"), ("flush.messages", "9")]))
    request = a_request(("retention.ms", SET, "7"), ("segment.ms", DELETE, None),
                        ("cleanup.policy", APPEND, "compact"))

    response = await ask(broker, k44_incremental_alter_configs, request, version)
    assert [r.error_code for r in response.responses] == [Code.NONE]
    await ask(broker, k44_incremental_alter_configs,
              a_request(("cleanup.policy", SUBTRACT, "delete")), version)

    assert dict(broker.cluster.state.topics["a"].configs) == {
        "retention.ms": "7", "flush.messages": "9", "cleanup.policy": "compact"}


@looped
async def test_a_broker_is_altered_while_it_runs() -> None:
    """K5: dynamic settings only; the others say what to do."""
    broker = await a_broker()

    good = await ask(broker, k44_incremental_alter_configs,
                     a_request(("message.max.bytes", SET, "2000"), kind=4, name="1"), 1)
    bad = await ask(broker, k44_incremental_alter_configs,
                    a_request(("log.dirs", SET, "/"), kind=4, name="1"), 1)

    assert good.responses[0].error_code == Code.NONE
    assert broker.cluster.settings.message_max_bytes == 2000
    assert bad.responses[0].error_code == Code.INVALID_REQUEST
    assert "restart" in bad.responses[0].error_message


@looped
async def test_validate_only_changes_nothing() -> None:
    broker = await a_broker(NewTopic("a"))
    for value, code in (("7", Code.NONE), ("x", Code.INVALID_CONFIG)):
        response = await ask(broker, k44_incremental_alter_configs,
                           a_request(("retention.ms", SET, value), validate_only=True), 1)
        assert response.responses[0].error_code == code

    assert dict(broker.cluster.state.topics["a"].configs) == {}
