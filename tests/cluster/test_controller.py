"""The controller dies again and again while topics are created; the network between nodes parts."""

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.standstill import SESSION_SECONDS
from tests.cluster.test_failures import assert_kept
from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster

pytestmark = pytest.mark.xdist_group("cluster")

KILLS = 20
HASTY = {  # twenty times what is waited for otherwise would take long
    "broker.heartbeat.interval.ms": "50", "broker.session.timeout.ms": "600",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.heartbeat.interval.ms": "40",
}
RETRY_SECONDS_MAX = 30.0


def create_for_sure(admin: AdminClient, name: str) -> None:
    """Ask until the topic is there; one that is there already was created by an earlier try."""
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        try:
            admin.create_topics([NewTopic(name, num_partitions=1)],
                                request_timeout=5)[name].result(10)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > deadline:
                raise
        else:
            return


@pytest.mark.timeout(240)
def test_every_acknowledged_creation_exists_once_although_controllers_die(tmp_path: Path) -> None:
    """K6, V15: twenty controllers are killed while topics are created on those that are left."""
    with RunningCluster(tmp_path, settings=HASTY) as cluster:
        created = []
        for round_number in range(KILLS):
            victim = cluster.controller()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            names = [f"t-{round_number}-{number}" for number in range(3)]
            pending = admin.create_topics([NewTopic(names[0], num_partitions=1)],
                                          request_timeout=10)
            cluster[victim].kill()
            try:
                pending[names[0]].result(15)
                created.append(names[0])
            except KafkaException:
                create_for_sure(admin, names[0])
                created.append(names[0])
            for name in names[1:]:
                create_for_sure(admin, name)
                created.append(name)
            cluster[victim].start()
        seen = {}
        for name, node in cluster.nodes.items():
            for _ in cluster.until(f"{name} knows every topic"):
                listed = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=10)
                topics = [topic for topic in listed.topics if not topic.startswith("__")]
                if len(topics) == len(created):
                    break
            seen[name] = sorted(topics)
        assert all(topics == sorted(created) for topics in seen.values())
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        collection = admin.describe_topics(
            TopicCollection(created), request_timeout=20)
        ids = {str(future.result().topic_id) for future in collection.values()}
        assert len(ids) == len(created)


@pytest.mark.timeout(240)
def test_no_split_brain_when_the_network_between_nodes_parts(tmp_path: Path) -> None:
    """V5, V15: every node in turn is cut off from the others while clients reach all of them;
    then only one direction is cut.  What a node on the wrong side takes is never acknowledged.
    """
    with RunningCluster(tmp_path, proxied=True) as cluster:
        assert cluster.proxy is not None
        cluster.create_topic("t", partitions=2)
        with traffic(cluster, "t") as running:
            for name in cluster.chains["a"]:
                running.await_progress()
                cluster.proxy.part([cluster.node_id(name)])
                running.await_progress(seconds=20, count=300)  # the others go on
                cluster.proxy.heal()
                cluster.await_serving("a")
            for source, target in (("a-0", "a-1"), ("a-2", "a-1"), ("a-1", "a-0")):
                running.await_progress()
                cluster.proxy.cut(cluster.node_id(source), cluster.node_id(target))
                time.sleep(2 * SESSION_SECONDS)
                cluster.proxy.heal()
                cluster.await_serving("a")
            running.await_progress()
        assert_kept(cluster, running, "t")
