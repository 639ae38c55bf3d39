"""A cluster whose nodes are upgraded one by one to the version that manages placement."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.earlier import earlier_version
from tests.harness.postgres import PostgresServer
from tests.harness.progress import wait_for
from tests.kill.load import PARTITIONS

pytestmark = pytest.mark.xdist_group("racks")

# In the history of this repository: the last commit that gives a partition one replica.
LAST_UNMANAGED = "broker: requests for offsets wait until the control plane knows a log"


def replicas(cluster: RunningCluster, topic: str) -> list[list[int]]:
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=20)
    return [each.replicas for _, each in sorted(listed.topics[topic].partitions.items())]


def upgrade(cluster: RunningCluster, name: str) -> None:
    """Stop a node, and start it with the sources of now."""
    assert cluster[name].stop() == 0
    cluster[name].environment = {}
    cluster[name].start()
    cluster.await_serving("a")


def test_a_cluster_with_a_node_of_the_earlier_version_keeps_serving(tmp_path: Path) -> None:
    """D9: nodes are upgraded one after the other while clients write and read; topics with one
    replica are reconciled as soon as the controller is a new one, and no data moves.
    """
    source, postgres = earlier_version(tmp_path / "earlier", LAST_UNMANAGED), PostgresServer()
    cluster = RunningCluster(tmp_path / "mixed", nodes=3, racks=("r1", "r2", "r3"), settings={
        "diskless.storage.system.enable": "true",
        "diskless.storage.url": (tmp_path / "objects").as_uri(),
        "diskless.control.plane.url": postgres.url, "diskless.flush.interval.ms": "20"})
    for node in cluster.nodes.values():
        node.environment = {"PYTHONPATH": str(source)}
    try:
        with cluster:
            cluster.create_topic("old", partitions=PARTITIONS, diskless_enable="true")
            assert {len(each) for each in replicas(cluster, "old")} == {1}
            with traffic(cluster, "old") as load:
                for name in ("a-0", "a-1"):
                    load.await_progress()
                    upgrade(cluster, name)
                load.await_progress()  # one old node, two new ones
                for _ in cluster.until("a new node is the controller"):
                    if cluster.controller() != "a-2":
                        break
                    cluster["a-2"].kill()
                    cluster["a-2"].start()
                wait_for(lambda: all(
                    sorted(each) == [1, 2, 3] for each in replicas(cluster, "old")))
                load.await_progress()
                upgrade(cluster, "a-2")
                load.await_progress()
            assert load.anomalies() == []
    finally:
        postgres.stop()
