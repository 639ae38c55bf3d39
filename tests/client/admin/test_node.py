"""Admin requests to a real node: what they change can be seen by others."""

import pytest
from confluent_kafka import Consumer, Producer

from quipu.client.admin.brokers import describe_cluster
from quipu.client.admin.groups import (
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
)
from quipu.client.admin.partitions import (
    HIGH_WATERMARK,
    delete_records,
    elect_leaders,
    list_reassignments,
    reassign_partitions,
)
from quipu.client.admin.quorum import describe_quorum
from quipu.client.admin.topics import (
    alter_topic_settings,
    create_partitions,
    create_topic,
    delete_topic,
    describe_topics,
    topic_settings,
)
from quipu.client.cluster import Cluster
from quipu.client.commit import commit
from quipu.client.errors import BrokerRefused
from quipu.client.settings import client_settings
from quipu.model.errors import Code
from quipu.model.ids import TopicPartition
from tests.harness.node import RunningNode


def client(node: RunningNode) -> Cluster:
    return Cluster(client_settings({"bootstrap.servers": node.bootstrap}))


def test_the_life_of_a_topic(node: RunningNode) -> None:
    """K5: created, described, grown, changed and deleted."""
    with client(node) as cluster:
        made = create_topic(cluster, "admin-life", partitions=2, settings={"retention.ms": "1000"})
        (topic,) = describe_topics(cluster, ["admin-life", "admin-none"]).values()
        assert (topic.topic_id, made.partition_count) == (made.topic_id, 2)
        assert [each.replicas for each in topic.partitions] == [(1,), (1,)]
        assert {each.leader for each in topic.partitions} == {1}
        with pytest.raises(BrokerRefused) as again:
            create_topic(cluster, "admin-life")
        assert again.value.code is Code.TOPIC_ALREADY_EXISTS

        create_partitions(cluster, "admin-life", 3)
        alter_topic_settings(cluster, "admin-life", {"max.message.bytes": "2000"}, ["retention.ms"])
        settings = topic_settings(cluster, "admin-life")
        assert {name: each.value for name, each in settings.items() if each.is_own} == {
            "max.message.bytes": "2000"}
        assert settings["retention.ms"].value == "604800000"
        with pytest.raises(BrokerRefused, match="cannot alter topic admin-life"):
            alter_topic_settings(cluster, "admin-life", {"nonsense": "1"})
        with pytest.raises(BrokerRefused, match="cannot add partitions to admin-life"):
            create_partitions(cluster, "admin-life", 1)

        delete_topic(cluster, "admin-life")
        assert "admin-life" not in describe_topics(cluster)
        with pytest.raises(BrokerRefused, match="cannot delete topic admin-life"):
            delete_topic(cluster, "admin-life")


def test_groups_and_their_offsets(node: RunningNode) -> None:
    """K3: who is in a group, what it has committed, and its end."""
    with client(node) as cluster:
        create_topic(cluster, "admin-read", partitions=2)
        commit(cluster, "admin-group", {TopicPartition("admin-read", 0): 0})
        assert list_groups(cluster).groups["admin-group"] == "Empty"
        assert not list_groups(cluster).missing
        assert committed_offsets(cluster, "admin-group") == {TopicPartition("admin-read", 0): 0}
        assert committed_offsets(cluster, "admin-nobody") == {}

        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "admin-group",
                             "client.id": "reader", "auto.offset.reset": "earliest"})
        consumer.subscribe(["admin-read"])
        while not consumer.assignment():
            consumer.poll(0.1)
        group = describe_group(cluster, "admin-group")
        (member,) = group.members
        assert (group.state, member.client_id) == ("Stable", "reader")
        assert member.partitions == (TopicPartition("admin-read", 0),
                                     TopicPartition("admin-read", 1))
        with pytest.raises(BrokerRefused) as refused:
            commit(cluster, "admin-group", {TopicPartition("admin-read", 0): 0})
        assert refused.value.code is Code.UNKNOWN_MEMBER_ID
        with pytest.raises(BrokerRefused, match="NON_EMPTY_GROUP"):
            delete_group(cluster, "admin-group")
        consumer.close()

        delete_offsets(cluster, "admin-group", [TopicPartition("admin-read", 0)])
        assert TopicPartition("admin-read", 0) not in committed_offsets(cluster, "admin-group")
        delete_group(cluster, "admin-group")
        assert "admin-group" not in list_groups(cluster).groups
        assert describe_group(cluster, "admin-group") is None


def test_the_quorum_of_a_single_node(node: RunningNode) -> None:
    """K6: who leads, who votes, and how far they are."""
    with client(node) as cluster:
        quorum = describe_quorum(cluster)
    assert (quorum.leader_id, [each.node_id for each in quorum.voters]) == (1, [1])
    assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0


def test_records_are_deleted_before_an_offset(node: RunningNode) -> None:
    """K5: and all of them, up to the high watermark."""
    partition = TopicPartition("admin-cut", 0)
    with client(node) as cluster:
        create_topic(cluster, "admin-cut", partitions=1)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(5):
            producer.produce("admin-cut", str(number), partition=0)
        assert producer.flush(30) == 0

        delete_records(cluster, {partition: 3})
        assert cluster.earliest([partition]) == {partition: 3}
        with pytest.raises(BrokerRefused, match="OFFSET_OUT_OF_RANGE"):
            delete_records(cluster, {partition: 9})
        delete_records(cluster, {partition: HIGH_WATERMARK})
        assert cluster.earliest([partition]) == cluster.latest([partition]) == {partition: 5}


def test_leaders_and_moves_of_a_single_node(node: RunningNode) -> None:
    """V5: there is nobody else to lead, and nowhere to go."""
    with client(node) as cluster:
        create_topic(cluster, "admin-still", partitions=1)
        partition = TopicPartition("admin-still", 0)
        assert elect_leaders(cluster, [partition]) == []
        assert list_reassignments(cluster) == {}
        with pytest.raises(BrokerRefused, match=r"cannot move admin-still-0: .*REPLICA_ASSIGNMENT"):
            reassign_partitions(cluster, {partition: [7]})
        with pytest.raises(BrokerRefused, match="NO_REASSIGNMENT_IN_PROGRESS"):
            reassign_partitions(cluster, {partition: None})


def test_the_cluster_and_its_brokers(node: RunningNode) -> None:
    """K6: its id, who decides, and where clients reach the brokers."""
    with client(node) as cluster:
        found = describe_cluster(cluster)
    assert found.cluster_id
    assert found.controller_id == 1
    (broker,) = found.brokers
    assert (broker.broker_id, str(broker.address), broker.is_fenced) == (1, node.bootstrap, False)
