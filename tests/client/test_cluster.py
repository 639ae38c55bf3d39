"""Topics and offsets, of a node of ours, of another broker, and of brokers in trouble."""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Committed

from quipu.client.cluster import Cluster
from quipu.client.commit import commit
from quipu.client.errors import BrokerRefused, ConnectionFailed, UnknownTopic
from quipu.client.settings import client_settings
from quipu.client.shared import KEPT_MAX, shared
from quipu.model.errors import Code
from quipu.model.ids import TopicPartition
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quipu.wire.messages.k03_metadata import MetadataResponse, MetadataResponseTopic
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from quipu.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from quipu.wire.schema import Response
from tests.client.fake_kafka import FakeKafka
from tests.pipeline.spark.broker import Broker


def cluster_at(bootstrap: str, **settings: str) -> Cluster:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(client_settings({
        "bootstrap.servers": bootstrap, "retry.backoff.ms": "10",
        "retry.backoff.max.ms": "50", **given}))


def test_topics_and_offsets_of_a_node(broker: Broker) -> None:
    """I14: the earliest, the latest, and by time."""
    topic = broker.topic(partitions=3)
    for number in range(5):
        broker.record(topic, value=b"v", timestamp=1_000_000 + number * 100)
    broker.record(topic, value=b"v", timestamp=5_000_000, partition=2)
    with cluster_at(broker.bootstrap) as cluster:
        first, second, third = parts = cluster.partitions([topic])
        assert parts == [TopicPartition(topic, index) for index in range(3)]
        assert cluster.latest(parts) == {first: 5, second: 0, third: 1}
        assert cluster.earliest(parts) == {first: 0, second: 0, third: 0}
        assert cluster.at_times(dict.fromkeys(parts, 1_000_150)) == {
            first: 2, second: None, third: 0}
        assert topic in cluster.topics()
        assert topic in cluster.topics(lambda names: names)
        assert cluster.topics(lambda names: names[:0]) == []
        assert cluster.topic_ids([topic])[topic].int
        broker.grow(topic, 4)
        assert len(cluster.partitions([topic])) == 4
        with pytest.raises(UnknownTopic, match="there is no topic nowhere"):
            cluster.partitions([topic, "nowhere"])
        with pytest.raises(UnknownTopic, match=f"there is no partition {topic}-9"):
            cluster.latest([TopicPartition(topic, 9)])


def test_offsets_are_committed_for_a_group(broker: Broker, mock: tuple[Producer, str]) -> None:
    """I20: whoever watches groups can tell the lag."""
    topic = broker.topic(partitions=2)
    producer, other = mock
    producer.produce("watched", "v", partition=0)
    producer.flush(10)
    for bootstrap, name in ((broker.bootstrap, topic), (other, "watched")):
        with cluster_at(bootstrap) as cluster:
            commit(cluster, "watchers", {TopicPartition(name, 0): 7})
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watchers"})
        (found,) = consumer.committed([Committed(name, 0)], timeout=20)
        consumer.close()
        assert found.offset == 7


def test_a_topic_without_a_leader_is_waited_for() -> None:
    answers = iter([
        MetadataResponse(topics=[MetadataResponseTopic(
            name="t", error_code=Code.LEADER_NOT_AVAILABLE)]),
        MetadataResponse(topics=[MetadataResponseTopic(
            name="t", error_code=Code.UNKNOWN_TOPIC_OR_PARTITION)]),
    ])
    with FakeKafka() as fake, cluster_at(fake.bootstrap) as cluster:
        fake.answers[3] = lambda _request, _version: next(answers, fake.metadata("t"))
        assert cluster.partitions(["t"]) == [TopicPartition("t", 0)]
        fake.answers[3] = lambda _request, _version: MetadataResponse(topics=[
            MetadataResponseTopic(name="t", error_code=Code.TOPIC_AUTHORIZATION_FAILED)])
        with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED"):
            cluster.partitions(["t"])


def test_offsets_are_asked_again_where_it_helps() -> None:
    """Leaders move, brokers hang up; what will not change is told at once."""
    codes = iter([Code.NOT_LEADER_OR_FOLLOWER, None, Code.NONE])

    def offsets(request: ListOffsetsRequest, _version: int) -> Response | None:
        code = next(codes, Code.TOPIC_AUTHORIZATION_FAILED)
        if code is None:
            return None
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[
            ListOffsetsPartitionResponse(error_code=code, offset=5)])])

    with FakeKafka() as fake, cluster_at(fake.bootstrap) as cluster:
        fake.answers[2] = offsets
        leaders = iter([0, -1])
        fake.answers[3] = lambda _request, _version: fake.metadata("t", leader=next(leaders, 0))
        part = TopicPartition("t", 0)
        assert cluster.latest([part]) == {part: 5}
        with pytest.raises(
                BrokerRefused, match="offsets of t-0: the broker responds with TOPIC_AUTH"):
            cluster.latest([part])


def test_a_cluster_that_is_not_there() -> None:
    with FakeKafka() as fake:
        port = fake.port
        fake.answers[3] = lambda _request, _version: b"\xff" * 50
        with cluster_at(fake.bootstrap) as cluster, \
                pytest.raises(ConnectionFailed, match=r"no broker responds.*cannot be read"):
            cluster.topics()
    gone = cluster_at(f"localhost:{port}", default_api_timeout_ms="300")
    with pytest.raises(ConnectionFailed, match=r"no broker responds: localhost:.*refused"):
        gone.topics()
    with pytest.raises(ConnectionFailed, match="no broker responds"):
        gone.any_connection()


def test_a_coordinator_that_moves() -> None:
    with FakeKafka() as fake, cluster_at(fake.bootstrap) as cluster:
        found = iter([Code.COORDINATOR_NOT_AVAILABLE, Code.NONE, Code.NONE])
        stored = iter([Code.NOT_COORDINATOR, Code.NONE])
        fake.answers[10] = lambda _request, _version: FindCoordinatorResponse(coordinators=[
            Coordinator(error_code=next(found), host="localhost", port=fake.port)])
        fake.answers[8] = lambda _request, _version: OffsetCommitResponse(topics=[
            OffsetCommitResponseTopic(name="t", partitions=[
                OffsetCommitResponsePartition(error_code=next(stored))])])
        commit(cluster, "g", {TopicPartition("t", 0): 3})
        (request, version) = fake.asked[-1]
        assert version == 9
        assert request.topics[0].partitions[0].committed_offset == 3


def test_clusters_are_shared_and_not_without_end() -> None:
    first = client_settings({"bootstrap.servers": "a:1"})
    assert shared(first) is shared(client_settings({"bootstrap.servers": "a:1"}))
    before = shared(first)
    for number in range(KEPT_MAX):
        shared(client_settings({"bootstrap.servers": f"b:{number + 1}"}))
    assert shared(first) is not before
