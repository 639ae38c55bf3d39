"""Settings that a tool reads from Quipu and writes to Kafka, and the other way round.

MirrorMaker 2 and scripts for backups do just this: describe a topic, and create it elsewhere with
what they were shown.
"""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.harness.cluster import RunningCluster
from tests.interop.kafka_server import KafkaCluster

pytestmark = pytest.mark.interop

LEAST = "min.insync.replicas"
GIVEN = {"default": {}, "strict": {LEAST: "0"}, "one": {LEAST: "1"}, "more": {LEAST: "7"}}
SHOWN = {"default": "2", "strict": "3", "one": "1", "more": "3"}


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str | None]:
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(20)
    return {each.name: each.value for each in found.values()}


def create(admin: AdminClient, topic: str, config: dict[str, str], replicas: int) -> None:
    new = NewTopic(topic, num_partitions=1, replication_factor=replicas, config=config)
    admin.create_topics([new], request_timeout=20)[topic].result(30)


@pytest.mark.timeout(240)
def test_min_insync_replicas_is_copied_to_kafka_and_back(kafka_jars: Path, tmp_path: Path) -> None:
    """K1, K5: whatever was set here, Kafka takes what it is shown as; what Kafka shows is taken
    here, and a topic with it can be written.
    """
    with (RunningCluster(tmp_path / "quipu") as quipu,
          KafkaCluster(kafka_jars, tmp_path / "kafka") as kafka):
        here = AdminClient({"bootstrap.servers": quipu.bootstrap})
        there = AdminClient({"bootstrap.servers": kafka.bootstrap})
        producer = Producer({"bootstrap.servers": quipu.bootstrap})
        for name, config in GIVEN.items():
            create(here, name, config, -1)
            shown = described(here, ResourceType.TOPIC, name)[LEAST]
            assert shown == SHOWN[name], name
            create(there, name, {LEAST: shown}, 1)
            back = described(there, ResourceType.TOPIC, name)[LEAST]
            assert back == shown
            create(here, f"{name}-back", {LEAST: back}, -1)
            assert described(here, ResourceType.TOPIC, f"{name}-back")[LEAST] == shown
            for topic in (name, f"{name}-back"):
                producer.produce(topic, b"x")
        assert producer.flush(30) == 0

        broker = described(here, ResourceType.BROKER, "2")
        assert (broker[LEAST], broker["default.replication.factor"], broker["node.id"]) == (
            "2", "3", "2")
        assert broker["advertised.listeners"] == f"PLAINTEXT://{quipu['a-1'].bootstrap}"
        assert (broker["listeners"] or "").startswith("PLAINTEXT://127.0.0.1:")
