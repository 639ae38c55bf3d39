"""DescribeConfigs in every version."""

import pytest

from quipu.broker.handlers import k32_describe_configs
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.settings import BROKER, TOPIC, BrokerSettings
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.broker.cluster.test_driver import set_to
from tests.broker.clusters import ABroker, a_broker, ask, versions
from tests.looped import looped

A_TOPIC = NewTopic("a", configs=[("retention.ms", "5")])
SHOWN = {name for name, row in TOPIC.items() if not row.is_internal}


def resource(kind: int, name: str, keys: list[str] | None = None) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys)


async def describe(
    broker: ABroker, *resources: DescribeConfigsResource, version: int = 4
) -> list:
    request = DescribeConfigsRequest(
        resources=list(resources), include_synonyms=True, include_documentation=True)
    return (await ask(broker, k32_describe_configs, request, version)).results


@pytest.mark.parametrize("version", versions(DescribeConfigsRequest))
@looped
async def test_all_settings_of_a_topic(version: int) -> None:
    """K5, K12: every setting, its source from 1 to 5, its type, and words about it."""
    (result,) = await describe(await a_broker(A_TOPIC), resource(2, "a"), version=version)

    configs = {config.name: config for config in result.configs}
    assert configs.keys() == SHOWN
    own, default = configs["retention.ms"], configs["segment.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("5", 1, False)
    assert (default.value, default.config_source) == (str(1 << 30), 5)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("retention.ms", "5", 1), ("log.retention.hours", "168", 5)]
    for config in result.configs:
        assert 1 <= config.config_source <= 5
        assert not config.is_sensitive
        if version >= 3:
            assert 1 <= config.config_type <= 9
            assert config.documentation


@looped
async def test_all_settings_of_a_broker() -> None:
    """K5: static, dynamic and default values have different sources."""
    broker = await a_broker(settings=BrokerSettings(
        broker_rack="r", explicit=frozenset({"broker.rack"})))
    await broker.cluster.controller.alter_configs(set_to(4, "1", "log.retention.ms", "7"))
    await broker.cluster.controller.alter_configs(set_to(4, "", "num.partitions", "3"))

    own, cluster = await describe(broker, resource(4, "1"), resource(4, ""))

    configs = {config.name: config for config in own.configs}
    assert configs.keys() == {name for name, row in BROKER.items() if not row.is_internal}
    assert [(configs[name].value, configs[name].config_source, configs[name].read_only)
            for name in ("broker.rack", "log.retention.ms", "num.partitions", "node.id")] == [
        ("r", 4, True), ("7", 2, False), ("3", 3, False), ("1", 5, True)]
    assert [(config.name, config.value) for config in cluster.configs] == [("num.partitions", "3")]
    assert all(configs[name].value not in (None, "", "0") for name in (
        "min.insync.replicas", "default.replication.factor", "listeners", "advertised.listeners"))


@pytest.mark.parametrize(("keys", "count"), [
    (None, len(SHOWN)), ([], len(SHOWN)), (["retention.ms"], 1), (["retention.ms", "x"], 1)])
@looped
async def test_names_choose_what_is_told(keys: list[str] | None, count: int) -> None:
    """K12: null and an empty list ask for all."""
    (result,) = await describe(await a_broker(A_TOPIC), resource(2, "a", keys))

    assert len(result.configs) == count
    assert "retention.ms" in {config.name for config in result.configs}


@looped
async def test_nothing_is_told_that_was_not_asked() -> None:
    request = DescribeConfigsRequest(resources=[resource(2, "a")])

    (result,) = (await ask(await a_broker(A_TOPIC), k32_describe_configs, request, 4)).results

    assert all(config.synonyms == [] for config in result.configs)
    assert all(config.documentation is None for config in result.configs)


@pytest.mark.parametrize(("why", "kind", "name", "code"), [
    ("an unknown topic", 2, "x", Code.UNKNOWN_TOPIC_OR_PARTITION),
    ("an illegal topic", 2, "", Code.INVALID_TOPIC_EXCEPTION),
    ("an unknown broker", 4, "9", Code.INVALID_REQUEST),
    ("a kind without settings", 3, "g", Code.INVALID_REQUEST),
])
@looped
async def test_a_bad_resource_does_not_fail_the_others(
    why: str, kind: int, name: str, code: Code
) -> None:
    bad, good = await describe(await a_broker(A_TOPIC), resource(kind, name), resource(2, "a"))

    assert (bad.error_code, bad.configs) == (code, [])
    assert bad.error_message
    assert (bad.resource_type, bad.resource_name) == (kind, name)
    assert good.error_code == Code.NONE
    assert good.error_message == ""
