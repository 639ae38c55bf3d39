"""Two chains side by side: topics spread, move, and do not suffer from each other."""

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition

from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.mark.timeout(180)
def test_topics_spread_by_weight_and_a_dead_chain_leaves_the_other_alone(tmp_path: Path) -> None:
    """V4, V6, V8: each new topic goes to a chain with the fewest; the other chain's death costs
    this one nothing.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        for number in range(8):
            cluster.create_topic(f"t{number}", partitions=2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        heads: dict[str, int] = {}
        for _ in cluster.until("the node that is asked knows all topics"):
            topics = admin.list_topics(timeout=10).topics
            heads = {name: topic.partitions[0].leader for name, topic in topics.items()
                     if name.startswith("t")}
            if len(heads) == 8:
                break
        assert sorted(Counter(heads.values()).values()) == [4, 4]
        on_a = min(name for name, head in heads.items() if head == cluster.node_id("a-0"))
        listed = {each["name"]: each for each in map(
            json.loads, cluster.quipu("chain", "list", "--json").splitlines())}
        assert {name: each["topics"] for name, each in listed.items()} == {"a": 4, "b": 4}
        with traffic(cluster, on_a) as running:
            running.await_progress()
            cluster["b-1"].kill()  # no voter
            running.await_progress(seconds=5, count=300)
        assert running.anomalies() == []


@pytest.mark.timeout(180)
def test_a_topic_moves_from_chain_to_chain_under_load(tmp_path: Path) -> None:
    """K6: a reassignment to the nodes of another chain carries everything over, as a stock tool
    asks for it.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=2)
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        before = replicas_of(cluster, "t")
        of_chain = {name: [cluster.node_id(node) for node in members]
                    for name, members in cluster.chains.items()}
        old = next(name for name, nodes in of_chain.items() if nodes == before)
        new = "b" if old == "a" else "a"
        with traffic(cluster, "t") as running:
            running.await_progress()
            answers = admin.alter_partition_reassignments(
                dict.fromkeys(partitions, of_chain[new]))
            assert answers == dict.fromkeys(partitions, None)
            for _ in cluster.until("the topic has moved"):
                if not admin.list_partition_reassignments() and (
                        replicas_of(cluster, "t") == of_chain[new]):
                    break
            running.await_progress()
        admin.close()
        assert running.anomalies() == []
        for name in cluster.chains[old]:
            directory = cluster[name].directory
            for _ in cluster.until(f"{name} has let go of the topic"):
                if not list(directory.glob("t-[01].*")):
                    break
        cluster.kill()
        assert cluster.differences(new, ["t"]) == ""


def replicas_of(cluster: RunningCluster, topic: str) -> list[int]:
    """The replicas of partition 0, as clients get them."""
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=10)
    return list(listed.topics[topic].partitions[0].replicas)
