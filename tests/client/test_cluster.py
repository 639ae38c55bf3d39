"""Topics, offsets and batches, from a node of ours and from another broker."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as Committed

from quipu.client.cluster import Cluster
from quipu.client.commit import commit
from quipu.client.errors import DataLost, UnknownTopic
from quipu.client.fetch import Fetched, fetch
from quipu.client.ranges import Range
from quipu.client.settings import client_settings
from quipu.model.ids import TopicPartition
from quipu.wire.record_batch import decode_records, parse_header
from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker


def cluster_at(bootstrap: str, **settings: str) -> Cluster:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(client_settings({"bootstrap.servers": bootstrap, **given}))


def values(chunks: list[Fetched]) -> dict[int, list[bytes]]:
    """The values fetched, by partition."""
    found: dict[int, list[bytes]] = {}
    for chunk in chunks:
        position = 0
        while position < len(chunk.records):
            header = parse_header(chunk.records, position)
            batch = chunk.records[position : position + header.size]
            found.setdefault(chunk.range.partition, []).extend(
                record.value or b"" for record in decode_records(batch, size_max=1 << 20))
            position += header.size
    return found


def test_a_node_of_ours(broker: Broker) -> None:
    topic = broker.topic(partitions=3)
    broker.send(topic, *(f"k:{number}" for number in range(10)), partition=0)
    broker.send(topic, "k:x", partition=2)
    with cluster_at(broker.bootstrap) as cluster:
        parts = cluster.partitions([topic])
        assert parts == [TopicPartition(topic, index) for index in range(3)]
        assert list(cluster.latest(parts).values()) == [10, 0, 1]
        assert list(cluster.earliest(parts).values()) == [0, 0, 0]
        got = list(fetch(cluster, [Range(topic, 0, 0, 10), Range(topic, 2, 0, 1)]))
        assert values(got) == {0: [str(number).encode() for number in range(10)], 2: [b"x"]}


def test_another_broker(mock: tuple[Producer, str]) -> None:
    """I18."""
    producer, bootstrap = mock
    for number in range(10):
        producer.produce("other", str(number), partition=number % 2)
    producer.flush(10)
    with cluster_at(bootstrap) as cluster:
        parts = cluster.partitions(["other"])
        ends = cluster.latest(parts)
        assert sum(ends.values()) == 10
        got = list(fetch(cluster, [Range("other", index, 0, 5) for index in (0, 1)]))
        assert values(got) == {0: [b"0", b"2", b"4", b"6", b"8"], 1: [b"1", b"3", b"5", b"7", b"9"]}
