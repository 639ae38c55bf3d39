"""A lag monitor: it reads `__consumer_offsets` from the beginning, and decodes it by itself."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from struct import unpack

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition

from tests.harness.node import RunningNode
from tests.harness.progress import wait_for

TOPIC = "__consumer_offsets"
PARTITIONS = 5
GROUPS = ["a", "orders-service", "Überweisung", "deleted", "x" * 200]

Offsets = dict[tuple[str, str, int], tuple[int, str]]  # group, topic, partition: offset, metadata


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    settings = {"offsets.topic.num.partitions": str(PARTITIONS),
                "log.cleaner.backoff.ms": "100"}
    with RunningNode(tmp_path / "data", settings=settings) as running:
        yield running


def number(data: BytesIO, size: int) -> int:
    return int.from_bytes(data.read(size), signed=True)


def compact_string(data: BytesIO) -> str:
    size = data.read(1)[0]
    assert size < 0x80  # one byte of a varint is enough here
    return data.read(size - 1).decode()


def read_topic(bootstrap: str) -> Offsets:
    """The offsets that the records say, by a decoder of its own."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    found: Offsets = {}
    while any(consumer.position(each) < ends[each] for each in partitions):
        for partition, records in consumer.poll(1000).items():
            for record in records:
                take(found, partition.partition, record.key, record.value)
    consumer.close()
    return found


def take(found: Offsets, partition: int, key: bytes, value: bytes | None) -> None:
    (kind,) = unpack(">h", key[:2])
    if kind != 1:
        return
    data = BytesIO(key[2:])
    group = data.read(number(data, 2)).decode()
    topic = data.read(number(data, 2)).decode()
    index = number(data, 4)
    assert partition == java_hash(group) % PARTITIONS
    if value is None:
        found.pop((group, topic, index), None)
        return
    data = BytesIO(value)
    assert number(data, 2) == 4
    offset, _ = number(data, 8), number(data, 4)
    metadata = compact_string(data).removesuffix("\0")  # librdkafka sends it with an end
    found[group, topic, index] = (offset, metadata)


def java_hash(name: str) -> int:
    """The absolute value of Java's String.hashCode; none of these names has the least integer."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) % (1 << 32)
    return code if code < 1 << 31 else (1 << 32) - code


def asked(admin: AdminClient) -> Offsets:
    """The offsets that OffsetFetch returns."""
    found: Offsets = {}
    for group in GROUPS:
        (future,) = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)]).values()
        for each in future.result().topic_partitions:
            found[group, each.topic, each.partition] = (each.offset, each.metadata or "")
    return found


def commit(node: RunningNode, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
    consumer.commit(asynchronous=False, offsets=[
        Position("t", 0, offset), Position("t", 1, offset + 1, "note"), Position("u", 0, offset)])
    consumer.close()


def test_a_lag_monitor_finds_what_offset_fetch_returns(node: RunningNode) -> None:
    """K3, T5: after commits, deletions and a kill, the records of the topic say what the
    coordinator says, in the partitions in which Kafka's tools look for them.
    """
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for made in admin.create_topics([NewTopic("t", 2), NewTopic("u", 1)]).values():
        made.result(30)
    for offset in (3, 7, 5):
        for group in GROUPS:
            commit(node, group, offset)
    (deleted,) = admin.delete_consumer_groups(["deleted"]).values()
    deleted.result()
    expected = {(group, topic, index): (5 + index, ["", "note"][index])
                for group in GROUPS if group != "deleted"
                for topic, index in (("t", 0), ("t", 1), ("u", 0))}
    assert asked(admin) == read_topic(node.bootstrap) == expected
    node.kill()
    node.start()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert asked(admin) == read_topic(node.bootstrap)
    for gone in admin.delete_topics(["u"]).values():
        gone.result(30)
    wait_for(lambda: read_topic(node.bootstrap) == asked(admin))
    assert {topic for _, topic, _ in read_topic(node.bootstrap)} == {"t"}
