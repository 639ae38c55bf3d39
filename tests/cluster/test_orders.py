"""Partitions with any number of replicas, in orders of their own, on real nodes."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.cluster.traffic import traffic
from tests.harness.cluster import RunningCluster
from tests.kill.load import PARTITIONS

pytestmark = pytest.mark.xdist_group("cluster")


def admin_of(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def partitions_of(cluster: RunningCluster, topic: str) -> list[tuple[list[int], int]]:
    """The replicas and the leader of each partition, as Metadata shows them."""
    listed = admin_of(cluster).list_topics(topic, timeout=20).topics[topic].partitions
    return [(each.replicas, each.leader) for _, each in sorted(listed.items())]


def write(cluster: RunningCluster, topic: str, count: int) -> None:
    """One value to each of `count` partitions, acknowledged by all of its replicas."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for partition in range(count):
        producer.produce(topic, f"value {partition}", partition=partition,
                         on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []


def read(cluster: RunningCluster, topic: str, partition: int) -> str:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(1, 30)
    finally:
        consumer.close()
    return found[0].value().decode() if found else ""


@pytest.mark.timeout(180)
def test_any_replication_factor_is_accepted_and_shown(tmp_path: Path) -> None:
    """K5, V2, V3: CreateTopics with 1, 2 and 3 of 3 nodes, a manual assignment, CreatePartitions;
    each partition is written at the head of its own list, and read back.
    """
    with RunningCluster(tmp_path, nodes=3, settings={"chain.rotate": "true"}) as cluster:
        admin = admin_of(cluster)
        made = admin.create_topics([
            NewTopic("one", 3, 1), NewTopic("two", 3, 2), NewTopic("three", 3, 3),
            NewTopic("by-hand", 2, replica_assignment=[[3, 1], [2, 3]])])
        for future in made.values():
            future.result(30)
        (grown,) = admin.create_partitions(
            [NewPartitions("by-hand", 3, replica_assignment=[[1, 2]])]).values()
        grown.result(30)
        refused = admin.create_topics([NewTopic("four", 1, 4)])["four"].exception(30)

        assert "only 3 brokers are registered" in str(refused)
        for topic, size in (("one", 1), ("two", 2), ("three", 3)):
            found = partitions_of(cluster, topic)
            assert sorted(leader for _, leader in found) == [1, 2, 3]
            assert all(len(replicas) == size and replicas[0] == leader
                       for replicas, leader in found)
        for _ in cluster.until("the assignment by hand is shown"):
            if len(partitions_of(cluster, "by-hand")) == 3:
                break
        assert partitions_of(cluster, "by-hand") == [([3, 1], 3), ([2, 3], 2), ([1, 2], 1)]
        for topic in ("one", "two", "three", "by-hand"):
            write(cluster, topic, 3)
            assert [read(cluster, topic, index) for index in range(3)] == [
                f"value {index}" for index in range(3)]
        described = json.loads(cluster.quipu("chain", "describe", "a", "--json"))
        assert described["topics"] == 5  # with the offsets of groups
        assert sum(each["partitions"] for each in described["orders"]) == described["partitions"]
        assert described["partitions"] > 12
        shown = json.loads(cluster.quipu("topic", "describe", "two", "--json"))
        assert [len(each["replicas"]) for each in shown["partitions"]] == [2, 2, 2]


@pytest.mark.timeout(240)
def test_nodes_of_rotated_orders_die_in_turn_and_nothing_is_lost(tmp_path: Path) -> None:
    """V16, V21, K6: each node is killed and comes back; then a preferred election gives every
    partition the head of its own list again.
    """
    with RunningCluster(tmp_path, nodes=3, settings={
            "chain.rotate": "true", "min.insync.replicas": "2"}) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        wanted = [replicas[0] for replicas, _ in partitions_of(cluster, "t")]
        with traffic(cluster, "t") as running:
            for name in ("a-0", "a-1", "a-2"):
                running.await_progress()
                cluster[name].kill()
                running.await_progress()
                cluster[name].start()
                for _ in cluster.until(f"{name} serves in all orders"):
                    orders = cluster.chain("a")["orders"]
                    if all(len(order["serving"]) == 3 for order in orders):
                        break
            admin = admin_of(cluster)
            admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
            for _ in cluster.until("every partition is led by the first of its list"):
                if [leader for _, leader in partitions_of(cluster, "t")] == wanted:
                    break
            running.await_progress()
        assert running.anomalies() == []


@pytest.mark.timeout(180)
def test_a_partition_of_one_node_is_back_with_that_node(tmp_path: Path) -> None:
    """V14: the others never serve what they do not have; the other partitions go on."""
    with RunningCluster(tmp_path, nodes=3, settings={"min.insync.replicas": "1"}) as cluster:
        admin = admin_of(cluster)
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(30)
        write(cluster, "t", 3)
        leaders = [leader for _, leader in partitions_of(cluster, "t")]
        lost = leaders.index(2)

        cluster["a-1"].kill()
        for _ in cluster.until("it has no leader"):
            if partitions_of(cluster, "t")[lost] == ([2], -1):
                break
        assert [read(cluster, "t", index) for index in range(3) if index != lost] == [
            f"value {index}" for index in range(3) if index != lost]
        cluster["a-1"].start()

        assert read(cluster, "t", lost) == f"value {lost}"


@pytest.mark.timeout(180)
def test_partitions_of_one_topic_are_spread_over_chains(tmp_path: Path) -> None:
    """V8: chain.spread=partition, by a topic's own setting."""
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        cluster.create_topic("t", partitions=4, chain_spread="partition", chain_rotate="true")

        assert sorted(replicas for replicas, _ in partitions_of(cluster, "t")) == [
            [1, 2], [2, 1], [1001, 1002], [1002, 1001]]
        write(cluster, "t", 4)
        assert [read(cluster, "t", index) for index in range(4)] == [
            f"value {index}" for index in range(4)]
