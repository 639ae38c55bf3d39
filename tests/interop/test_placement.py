"""Managed placement as Kafka's own tools see it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.harness.cluster import RunningCluster
from tests.harness.postgres import PostgresServer
from tests.interop.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop

RACKS = ("r1", "r2", "r3")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


def cluster_at(path: Path, postgres: PostgresServer) -> RunningCluster:
    return RunningCluster(path, nodes=3, racks=RACKS, settings={
        "diskless.storage.system.enable": "true",
        "diskless.storage.url": (path / "objects").as_uri(),
        "diskless.control.plane.url": postgres.url,
        "diskless.flush.interval.ms": "20"})


def replicas(cluster: RunningCluster, topic: str) -> list[list[int]]:
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=20)
    return [each.replicas for _, each in sorted(listed.topics[topic].partitions.items())]


@pytest.mark.timeout(300)
def test_kafkas_tools_move_and_elect(
    kafka_jars: Path, postgres: PostgresServer, tmp_path: Path
) -> None:
    """K1, K6, D18, D20: they describe one replica in each rack; a reassignment is done at once, and
    verified; the preferred leader is elected.
    """
    with cluster_at(tmp_path, postgres) as cluster:
        tools = KafkaTools(kafka_jars, cluster.bootstrap)
        cluster.create_topic("placed", partitions=2, diskless_enable="true")
        shown = tools.run("kafka-topics", "--describe", "--topic", "placed")
        assert re.search(r"ReplicationFactor: 3\b", shown), shown
        found = re.findall(r"Leader: (\d)\s+Replicas: (\S+)\s+Isr: (\S+)", shown)
        assert [sorted(each[1].split(",")) for each in found] == [["1", "2", "3"]] * 2
        assert all(each[1] == each[2] for each in found)

        first = replicas(cluster, "placed")[0]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [
            {"topic": "placed", "partition": 0, "replicas": first[1:] + first[:1]}]}))
        done = tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan),
                         "--execute")
        assert "Successfully started partition reassignment" in done
        assert replicas(cluster, "placed")[0] == first[1:] + first[:1]
        done = tools.run("kafka-reassign-partitions", "--list")
        assert "No partition reassignments found" in done, done

        shown = tools.run("kafka-topics", "--describe", "--topic", "placed")
        leader = re.findall(r"Partition: 0\s+Leader: (\d)", shown)
        assert leader == [str(first[0])]  # it stays until another is elected
        done = tools.run("kafka-leader-election", "--election-type", "preferred",
                         "--topic", "placed", "--partition", "0")
        assert "Successfully completed leader election" in done
        shown = tools.run("kafka-topics", "--describe", "--topic", "placed")
        assert re.findall(r"Partition: 0\s+Leader: (\d)", shown) == [str(first[1])]
