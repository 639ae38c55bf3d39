"""The table of Kafka's settings beside a Kafka that runs: names, types, defaults and modes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.client.cluster import Cluster
from quipu.client.settings import client_settings
from quipu.model.kafka_settings import KAFKA_BROKER, KAFKA_TOPIC
from quipu.model.kafka_settings.rows import KafkaSetting, UpdateMode
from quipu.model.settings import TOPIC, parse
from quipu.model.settings_rules import SettingType
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tests.interop.kafka_server import KafkaCluster
from tests.interop.software import folder_of

DEFAULT_SOURCE = 5
OF_TOPIC, OF_BROKER = 2, 4
Described = Mapping[str, DescribeConfigsResourceResult]


def described(bootstrap: str, kind: int, name: str) -> Described:
    """All settings of a topic or a broker, with types and the layers of their values."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=True, include_documentation=True)
    with Cluster(client_settings({"bootstrap.servers": bootstrap})) as cluster:
        cluster.brokers()
        (result,) = cluster.connection(1).ask(request, DescribeConfigsResponse).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def default_of(config: DescribeConfigsResourceResult) -> tuple[bool, str | None]:
    """Whether the built-in default is told, and what it is."""
    for synonym in config.synonyms:
        if synonym.source == DEFAULT_SOURCE and synonym.name == config.name:
            return True, synonym.value
    return config.config_source == DEFAULT_SOURCE and not config.synonyms, config.value


def differences(found: Described, ours: Mapping[str, KafkaSetting]) -> Iterator[str]:
    """Where the table is not what Kafka says."""
    shown = {name for name, row in ours.items() if not row.is_internal}
    yield from (f"{name}: not in the table" for name in sorted(found.keys() - ours.keys()))
    yield from (f"{name}: Kafka has no such setting" for name in sorted(shown - found.keys()))
    for name in sorted(found.keys() & ours.keys()):
        config, row = found[name], ours[name]
        if config.config_type != row.type:
            yield f"{name}: {row.type.name}, and {SettingType(config.config_type).name} in Kafka"
        is_told, default = default_of(config)
        if is_told and (default or "") != (row.default or "") and not config.is_sensitive:
            yield f"{name}: default {row.default!r}, and {default!r} in Kafka"
        if row.mode is not None and config.read_only != (row.mode is UpdateMode.READ_ONLY):
            yield f"{name}: {row.mode}, and Kafka says read_only={config.read_only}"


@pytest.mark.timeout(240)
def test_the_table_is_what_a_kafka_that_runs_says(tmp_path: Path) -> None:
    """K1, K5: no setting of a broker or a topic is missing, and none is of another kind."""
    with KafkaCluster(folder_of("kafka") / "jars", tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        broker = described(kafka.bootstrap, OF_BROKER, "1")
        topic = described(kafka.bootstrap, OF_TOPIC, "t")

    assert len(broker) > 300
    assert list(differences(broker, KAFKA_BROKER)) == []
    assert list(differences(topic, KAFKA_TOPIC)) == []
    for config in topic.values():  # a tool that copies them to us, as MirrorMaker does
        parse(TOPIC, config.name, config.value or "")
