"""A cluster whose nodes are upgraded one by one to the version that knows derived chains."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.harness.earlier import earlier_version
from tests.kill.load import PARTITIONS
from tests.startup.test_mixed_placement import replicas, upgrade

pytestmark = pytest.mark.xdist_group("racks")

# In the history of this repository: the last commit that knows whole chains only.
LAST_WHOLE = "tests: a real Apache Kafka 4.2 of one node or several in make interop"


@pytest.mark.timeout(300)
def test_no_order_is_made_before_every_node_can_read_it(tmp_path: Path) -> None:
    """K5, controller.E2, controller.R4: while nodes are upgraded one after the other under load,
    topics are on whole chains, whatever their factor, and no node is lost; as soon as the last one
    is upgraded, a topic has the replicas that it asks for.
    """
    source = earlier_version(tmp_path / "earlier", LAST_WHOLE)
    cluster = RunningCluster(tmp_path / "mixed", nodes=3, settings={"min.insync.replicas": "2"})
    for node in cluster.nodes.values():
        node.environment = {"PYTHONPATH": str(source)}
    with cluster:
        cluster.create_topic("old", partitions=PARTITIONS)
        with traffic(cluster, "old") as load:
            for number, name in enumerate(("a-0", "a-1")):
                load.await_progress()
                upgrade(cluster, name)
                for _ in cluster.until("a new node is the controller"):
                    if cluster.controller() == name:
                        break
                    other = cluster[cluster.controller()]
                    assert other.stop() == 0
                    other.start()
                    cluster.await_serving("a")
                admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
                topic = f"mixed-{number}"
                admin.create_topics([NewTopic(topic, 3, 2)])[topic].result(30)
                assert {tuple(sorted(each)) for each in replicas(cluster, topic)} == {(1, 2, 3)}
            load.await_progress()
            upgrade(cluster, "a-2")
            load.await_progress()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            for number in range(100):
                topic = f"new-{number}"
                admin.create_topics([NewTopic(topic, 3, 2)])[topic].result(30)
                found = replicas(cluster, topic)
                if {len(each) for each in found} == {2}:
                    break  # the controller knows from its heartbeat that the last node can read it
            assert sorted(each[0] for each in found) == [1, 2, 3]
            load.await_progress()
        assert load.anomalies() == []
