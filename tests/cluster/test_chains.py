"""Two chains side by side: topics spread, and what happens to one does not touch the other."""

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

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
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10)
        heads = {name: topic.partitions[0].leader for name, topic in topics.topics.items()
                 if name.startswith("t")}
        assert sorted(Counter(heads.values()).values()) == [4, 4]
        on_a = min(name for name, head in heads.items() if head == cluster.node_id("a-0"))
        listed = {each["name"]: each for each in json.loads(
            cluster.quipu("chain", "list", "--json"))}
        assert {name: each["topics"] for name, each in listed.items()} == {"a": 4, "b": 4}
        with traffic(cluster, on_a) as running:
            running.await_progress()
            cluster["b-1"].kill()  # no voter
            running.await_progress(seconds=5, count=300)
        assert running.anomalies() == []


@pytest.mark.timeout(180)
def test_a_topic_moves_from_chain_to_chain_under_load(tmp_path: Path) -> None:
    """K6: a reassignment to the nodes of another chain carries everything over; one to nodes that
    are no chain is refused.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=2)
