"""Every sensitive setting, through every request that shows or changes settings."""

import dataclasses

import pytest

from quipu.broker.handlers import k32_describe_configs, k33_alter_configs
from quipu.broker.handlers import k44_incremental_alter_configs as k44
from quipu.controller.configs import ConfigOperation
from quipu.controller.records import ConfigChanged
from quipu.model.errors import Code
from quipu.model.settings import BROKER, OWN_BROKER, BrokerSettings
from quipu.model.settings_types import attribute_name
from quipu.wire.messages.k32_describe_configs import DescribeConfigsRequest
from quipu.wire.messages.k33_alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from quipu.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from tests.broker.clusters import ABroker, a_broker, ask, versions
from tests.broker.handlers.test_k32_describe_configs import resource
from tests.looped import looped

SENSITIVE = [row.name for row in BROKER.values() if row.is_sensitive]
VALUE, OTHER = "hunter2-is-my-secret", "hunter3-is-my-secret"


async def a_broker_with_secrets() -> ABroker:
    values = {attribute_name(name): VALUE for name in SENSITIVE if name in OWN_BROKER}
    return await a_broker(settings=dataclasses.replace(
        BrokerSettings(explicit=frozenset(SENSITIVE)),
        **values))  # type: ignore[arg-type]  # secrets are texts


@pytest.mark.parametrize("version", versions(DescribeConfigsRequest))
@looped
async def test_a_sensitive_setting_is_marked_and_has_no_value(version: int) -> None:
    """K8, K12: neither the value nor its synonyms, by any version; as in Kafka."""
    broker = await a_broker_with_secrets()
    for names in (None, SENSITIVE):
        request = DescribeConfigsRequest(
            resources=[resource(4, "1", names), resource(4, "")],
            include_synonyms=True, include_documentation=True)

        response = await ask(broker, k32_describe_configs, request, version)

        assert VALUE.encode() not in response.encode(version)
        found = {config.name: config for config in response.results[0].configs
                 if config.is_sensitive}
        assert sorted(found) == sorted(SENSITIVE)
        for config in found.values():
            assert config.value is None
            assert config.config_source == 4
            assert {synonym.value for synonym in config.synonyms} == {None}


@looped
async def test_a_secret_that_got_into_the_metadata_is_not_shown() -> None:
    """K8: nothing lets one in; if it were there, the response would still hide it."""
    broker = await a_broker_with_secrets()
    for name in SENSITIVE:
        for owner in ("", "1"):
            broker.cluster.state.apply(ConfigChanged(
                resource_type=4, resource_name=owner, name=name, value=OTHER))
    request = DescribeConfigsRequest(
        resources=[resource(4, "1"), resource(4, "")], include_synonyms=True)

    response = await ask(broker, k32_describe_configs, request, 4)

    assert OTHER.encode() not in response.encode(4)
    assert VALUE.encode() not in response.encode(4)


@pytest.mark.parametrize("name", SENSITIVE)
@pytest.mark.parametrize("owner", ["", "1"])
@looped
async def test_a_secret_cannot_be_changed_by_a_client(name: str, owner: str) -> None:
    """K8: refused, without its value in the response."""
    broker = await a_broker_with_secrets()
    whole = await ask(broker, k33_alter_configs, AlterConfigsRequest(resources=[
        AlterConfigsResource(resource_type=4, resource_name=owner, configs=[
            AlterableConfig(name=name, value=OTHER)])]), 2)
    (response,) = whole.responses
    assert response.error_code == (
        Code.INVALID_CONFIG if BROKER[name].refused and BROKER[name].dynamic and owner
        else Code.INVALID_REQUEST)
    assert OTHER not in (response.error_message or "")
    for operation in ConfigOperation:
        one = await ask(broker, k44, IncrementalAlterConfigsRequest(resources=[
            IncrementalResource(resource_type=4, resource_name=owner, configs=[
                IncrementalConfig(name=name, config_operation=operation, value=OTHER)])]), 1)
        (response,) = one.responses
        assert OTHER not in (response.error_message or "")
    assert not any(broker.cluster.state.broker_configs.values())


@pytest.mark.parametrize("name", SENSITIVE)
@looped
async def test_a_secret_given_to_a_topic_is_not_repeated(name: str) -> None:
    """K8: a client that mixes up topics and brokers gets the name alone."""
    broker = await a_broker_with_secrets()
    response = await ask(broker, k33_alter_configs, AlterConfigsRequest(resources=[
        AlterConfigsResource(resource_type=2, resource_name="x", configs=[
            AlterableConfig(name=name, value=OTHER)])]), 2)
    assert OTHER.encode() not in response.encode(2)
