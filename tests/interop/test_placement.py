"""Managed placement as Kafka's own tools see it, and beside a node of an earlier version."""

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.node import REPOSITORY
from tests.harness.postgres import PostgresServer
from tests.harness.progress import wait_for
from tests.interop.kafka_tools import KafkaTools
from tests.kill.load import PARTITIONS

pytestmark = pytest.mark.interop

RACKS = ("r1", "r2", "r3")
# The commit that managed placement began with: its parent gives a partition one replica.
FIRST = "controller: managed placement of diskless topics"


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


def earlier_version(folder: Path) -> Path:
    """The sources of the version before managed placement; its compiled parts run as Python."""
    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", str(REPOSITORY), *words], check=True,
                              capture_output=True).stdout

    commits = git("log", "--format=%H", "--fixed-strings", f"--grep={FIRST}").split()
    if not commits:
        pytest.skip("the history of this checkout does not have the earlier version")
    with tarfile.open(fileobj=BytesIO(git("archive", f"{commits[-1].decode()}^", "src"))) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


@pytest.mark.timeout(300)
def test_a_cluster_with_a_node_of_the_earlier_version_keeps_serving(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """D9: nodes are upgraded one after the other while clients write and read; topics with one
    replica are reconciled as soon as the controller is a new one, and no data moves.
    """
    source = earlier_version(tmp_path / "earlier")
    cluster = cluster_at(tmp_path / "mixed", postgres)
    for node in cluster.nodes.values():
        node.environment = {"PYTHONPATH": str(source)}
    with cluster:
        cluster.create_topic("old", partitions=PARTITIONS, diskless_enable="true")
        assert {len(each) for each in replicas(cluster, "old")} == {1}
        with traffic(cluster, "old") as load:
            for name in ("a-0", "a-1"):
                load.await_progress()
                cluster[name].stop()
                cluster[name].environment = {}
                cluster[name].start()
                cluster.await_serving("a")
            load.await_progress()  # one old node, two new ones
            while cluster.controller() == "a-2":
                cluster["a-2"].kill()
                cluster["a-2"].start()
            wait_for(lambda: all(sorted(each) == [1, 2, 3] for each in replicas(cluster, "old")))
            load.await_progress()
            cluster["a-2"].stop()
            cluster["a-2"].environment = {}
            cluster["a-2"].start()
            load.await_progress()
        assert load.anomalies() == []
