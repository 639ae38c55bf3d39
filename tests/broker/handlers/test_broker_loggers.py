"""Levels of loggers, as settings of the node that is asked."""


import logging
from collections.abc import Iterator

import pytest

from quipu.broker.handlers import (
    k33_alter_configs,
    k44_incremental_alter_configs,
)
from quipu.broker.observing.loggers import LEVELS
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
)
from quipu.wire.messages.k33_alter_configs import (
    AlterConfigsResource as WholeResource,
)
from quipu.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from tests.broker.clusters import a_broker, ask
from tests.broker.config_requests import Change, alter, describe, resource
from tests.looped import looped

SET, DELETE, APPEND = range(3)
LOGGER = "quipu.test.levels"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Levels belong to the process: they are put back after a test."""
    root, logger = logging.getLogger(), logging.getLogger(LOGGER)
    before = root.level
    yield
    root.setLevel(before)
    logger.setLevel(logging.NOTSET)


@looped
async def test_levels_of_loggers_are_those_of_the_process() -> None:
    """K9: what is set takes effect at once, in Kafka's words; and below, unless set there."""
    broker = await a_broker()
    logging.getLogger(f"{LOGGER}.below")
    (result,) = await alter(broker, resource(8, "1", (LOGGER, SET, "DEBUG")))
    described = {config.name: config for config in (await describe(broker, 8, "1")).configs}

    assert result.error_code == Code.NONE
    assert logging.getLogger(f"{LOGGER}.below").isEnabledFor(logging.DEBUG)
    assert described[LOGGER].value == described[f"{LOGGER}.below"].value == "DEBUG"
    assert described.keys() >= {"root", "quipu.broker.cluster.controller"}
    assert {config.config_source for config in described.values()} == {6}
    assert {config.value for config in described.values()} <= LEVELS.keys()

    await alter(broker, resource(8, "1", (LOGGER, DELETE, None), ("root", SET, "ERROR")))
    assert (await describe(broker, 8, "1", LOGGER)).configs[0].value == "ERROR"


@pytest.mark.parametrize(("why", "node", "changes", "code"), [
    ("another node", "2", [(LOGGER, SET, "DEBUG")], Code.INVALID_REQUEST),
    ("no node", "", [(LOGGER, SET, "DEBUG")], Code.INVALID_REQUEST),
    ("no such logger", "1", [("quipu.no.such", SET, "DEBUG")], Code.INVALID_CONFIG),
    ("no such level", "1", [(LOGGER, SET, "debug")], Code.INVALID_CONFIG),
    ("one of two", "1", [(LOGGER, SET, "DEBUG"), ("root", SET, "LOUD")], Code.INVALID_CONFIG),
    ("no value", "1", [(LOGGER, SET, None)], Code.INVALID_REQUEST),
    ("no list", "1", [(LOGGER, APPEND, "DEBUG")], Code.INVALID_REQUEST),
    ("no parent", "1", [("root", DELETE, None)], Code.INVALID_REQUEST),
    ("twice", "1", [(LOGGER, SET, "DEBUG"), (LOGGER, DELETE, None)], Code.INVALID_REQUEST),
])
@looped
async def test_levels_that_cannot_be_set(
    why: str, node: str, changes: list[Change], code: Code
) -> None:
    """K8, K9: broker.observing.L1; nothing changes, and no logger comes into being."""
    broker = await a_broker()
    logging.getLogger(LOGGER)
    known = set(logging.root.manager.loggerDict)
    (result,) = await alter(broker, resource(8, node, *changes))

    assert (result.error_code, bool(result.error_message)) == (code, True), why
    assert logging.getLogger(LOGGER).level == logging.NOTSET
    assert set(logging.root.manager.loggerDict) == known


@looped
async def test_levels_are_only_validated_if_that_is_asked_for() -> None:
    """K9: the response is that of a real change."""
    broker = await a_broker()
    logging.getLogger(LOGGER)
    (result,) = await alter(
        broker, resource(8, "1", (LOGGER, SET, "FATAL")), validate_only=True)

    assert result.error_code == Code.NONE
    assert logging.getLogger(LOGGER).level == logging.NOTSET


@looped
async def test_loggers_and_topics_can_be_altered_by_one_request() -> None:
    """K5: the node changes its loggers, and the controller the rest; each is answered."""
    broker = await a_broker(NewTopic("t"))
    logging.getLogger(LOGGER)
    loggers = resource(8, "1", (LOGGER, SET, "DEBUG"))
    results = await alter(broker, loggers, resource(2, "t", ("retention.ms", SET, "7")),
                          resource(2, "nope", ("retention.ms", SET, "7")))

    assert [(each.resource_name, each.error_code) for each in results] == [
        ("1", Code.NONE), ("t", Code.NONE), ("nope", Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert broker.cluster.state.topics["t"].configs == {"retention.ms": "7"}
    assert [each.error_code for each in await alter(broker, loggers, loggers)] == [
        Code.INVALID_REQUEST] * 2


@looped
async def test_loggers_cannot_be_replaced_as_a_whole() -> None:
    """K5: AlterConfigs would reset all others; Kafka does not have it either."""
    request = AlterConfigsRequest(resources=[WholeResource(resource_type=8, resource_name="1")])
    response = await ask(await a_broker(), k33_alter_configs, request, 2)

    assert response.responses[0].error_code == Code.INVALID_REQUEST


@looped
async def test_a_controller_stores_no_levels() -> None:
    """K5: they would come to it only from a node of another version."""
    request = IncrementalAlterConfigsRequest(resources=[resource(8, "1", ("root", SET, "DEBUG"))])
    response = await ask(await a_broker(), k44_incremental_alter_configs, request, 1)

    assert response.responses[0].error_code == Code.INVALID_REQUEST
