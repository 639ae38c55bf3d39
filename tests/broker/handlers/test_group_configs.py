"""Settings of groups and of client metrics: described, altered, stored."""


from typing import cast

import pytest

from quipu.broker.handlers import (
    k33_alter_configs,
)
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker
from quipu.controller.resources import NAME_SIZE_MAX, NAMES_MAX
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.resource_settings import CLIENT_METRICS, GROUP, VALUE_SIZE_MAX
from quipu.wire.messages.k33_alter_configs import (
    AlterableConfig as WholeConfig,
)
from quipu.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
)
from quipu.wire.messages.k33_alter_configs import (
    AlterConfigsResource as WholeResource,
)
from tests.broker.clusters import ABroker, MemoryLog, a_broker, a_cluster, ask
from tests.broker.config_requests import Change, alter, describe, resource
from tests.looped import looped

SET, DELETE, APPEND = range(3)
TIMEOUT = "consumer.session.timeout.ms"


@looped
async def test_a_group_has_settings_before_it_exists() -> None:
    """K5: all of Kafka's, with their defaults; what is set is shown with its source."""
    broker = await a_broker()
    (altered,) = await alter(broker, resource(32, "g", (TIMEOUT, SET, "50000")))
    described = await describe(broker, 32, "g")
    found = {config.name: config for config in described.configs}

    assert altered.error_code == described.error_code == Code.NONE
    assert found.keys() == GROUP.keys()
    assert (found[TIMEOUT].value, found[TIMEOUT].config_source) == ("50000", 8)
    assert [(s.value, s.source) for s in found[TIMEOUT].synonyms] == [("50000", 8)]
    other = found["share.auto.offset.reset"]
    assert (other.value, other.config_source, other.read_only) == ("latest", 5, False)
    assert [config.name for config in (await describe(broker, 32, "g", TIMEOUT, "x")).configs] == [
        TIMEOUT]


@looped
async def test_a_subscription_to_client_metrics_is_stored_and_shown() -> None:
    """K5: kafka-client-metrics creates one so, and deletes it by removing all of its settings."""
    broker = await a_broker()
    set_ = {"metrics": "org.apache.kafka.producer.", "interval.ms": "60000",
            "match": "client_id=a.*,client_software_name=librdkafka"}
    await alter(broker, resource(16, "m", *((name, SET, value) for name, value in set_.items())))
    described = await describe(broker, 16, "m")

    assert {config.name: config.value for config in described.configs} == set_
    assert {config.config_source for config in described.configs} == {7}

    await alter(broker, resource(16, "m", *((name, DELETE, None) for name in set_)))
    described = await describe(broker, 16, "m")

    assert {config.config_source for config in described.configs} == {5}
    assert broker.cluster.state.client_metrics_configs == {}


@looped
async def test_settings_of_groups_survive_a_restart_and_a_snapshot() -> None:
    """K5: controller.S5; they are part of the cluster's metadata."""
    log = MemoryLog()
    broker = ABroker(cluster=await a_cluster(log=log))
    forwarding.serve(cast("Broker", broker))
    await alter(broker, resource(32, "g", (TIMEOUT, SET, "50000")),
                resource(16, "m", ("interval.ms", SET, "100")))

    again = ABroker(cluster=await a_cluster(log=log))
    assert (await describe(again, 32, "g", TIMEOUT)).configs[0].value == "50000"
    copied = ClusterState()
    for record in records_of(again.cluster.state):
        copied.apply(record)
    assert copied.group_configs == {"g": {TIMEOUT: "50000"}}
    assert copied.client_metrics_configs == {"m": {"interval.ms": "100"}}


@pytest.mark.parametrize(("why", "kind", "name", "change", "code"), [
    ("too short a timeout", 32, "g", (TIMEOUT, SET, "44999"), Code.INVALID_CONFIG),
    ("too long a timeout", 32, "g", (TIMEOUT, SET, "60001"), Code.INVALID_CONFIG),
    ("no number", 32, "g", (TIMEOUT, SET, "x"), Code.INVALID_CONFIG),
    ("no value", 32, "g", (TIMEOUT, SET, None), Code.INVALID_REQUEST),
    ("no such setting", 32, "g", ("retention.ms", SET, "1"), Code.INVALID_CONFIG),
    ("no list", 32, "g", (TIMEOUT, APPEND, "1"), Code.INVALID_CONFIG),
    ("no duration", 32, "g", ("share.auto.offset.reset", SET, "by_duration:P"),
     Code.INVALID_CONFIG),
    ("no name", 32, "", (TIMEOUT, SET, "50000"), Code.INVALID_REQUEST),
    ("too long a name", 32, "g" * (NAME_SIZE_MAX + 1), (TIMEOUT, SET, "50000"),
     Code.INVALID_REQUEST),
    ("too often", 16, "m", ("interval.ms", SET, "99"), Code.INVALID_CONFIG),
    ("no pair", 16, "m", ("match", SET, "client_id"), Code.INVALID_CONFIG),
    ("no property", 16, "m", ("match", SET, "color=red"), Code.INVALID_CONFIG),
    ("no pattern", 16, "m", ("match", SET, "client_id=["), Code.INVALID_CONFIG),
    ("too long a value", 16, "m", ("metrics", SET, "m" * (VALUE_SIZE_MAX + 1)),
     Code.INVALID_CONFIG),
])
@pytest.mark.parametrize("validate_only", [False, True])
@looped
async def test_what_cannot_be_set(
    why: str, kind: int, name: str, change: Change, code: Code, *, validate_only: bool
) -> None:
    """K5, K8: an error with a reason, the same if the request is only validated."""
    broker = await a_broker()
    (result,) = await alter(broker, resource(kind, name, change), validate_only=validate_only)

    assert (result.error_code, bool(result.error_message)) == (code, True), why
    assert broker.cluster.state.group_configs == {}
    assert broker.cluster.state.client_metrics_configs == {}


@looped
async def test_to_delete_what_is_not_set_is_no_error() -> None:
    """K5: as in Kafka, also if there is no such setting."""
    broker = await a_broker(NewTopic("t"))
    results = await alter(broker, resource(32, "g", ("no.such.setting", DELETE, None)),
                          resource(2, "t", ("no.such.setting", DELETE, None)))

    assert [result.error_code for result in results] == [Code.NONE, Code.NONE]


@looped
async def test_all_settings_of_a_group_can_be_replaced() -> None:
    """K5: AlterConfigs, which older tools use."""
    broker = await a_broker()
    await alter(broker, resource(32, "g", (TIMEOUT, SET, "50000")))
    request = AlterConfigsRequest(resources=[WholeResource(
        resource_type=32, resource_name="g",
        configs=[WholeConfig(name="consumer.heartbeat.interval.ms", value="6000")])])
    response = await ask(broker, k33_alter_configs, request, 2)

    assert response.responses[0].error_code == Code.NONE
    assert broker.cluster.state.group_configs == {"g": {"consumer.heartbeat.interval.ms": "6000"}}


@looped
async def test_the_number_of_groups_with_settings_is_bounded() -> None:
    """K8: clients choose the names, and every node keeps the settings in memory."""
    broker = await a_broker()
    state = broker.cluster.state
    state.group_configs.update({str(number): {TIMEOUT: "50000"} for number in range(NAMES_MAX)})

    one_more, known = await alter(
        broker, resource(32, "more", (TIMEOUT, SET, "50000")),
        resource(32, "7", (TIMEOUT, SET, "51000")))

    assert one_more.error_code == Code.POLICY_VIOLATION
    assert known.error_code == Code.NONE
    assert (await describe(broker, 32, "more")).error_code == Code.NONE


def test_every_setting_of_a_group_says_why_it_has_no_effect() -> None:
    """model.C1: they are stored for the tools; nothing reads them."""
    assert all(row.ignored for row in (*GROUP.values(), *CLIENT_METRICS.values()))
