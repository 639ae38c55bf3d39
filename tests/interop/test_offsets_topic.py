"""`__consumer_offsets`, as Kafka's own tools print it: the same on Kafka and on Quipu.

One story is told to both: offsets committed from outside, by name and by id, by a member, and
deleted with their topic, one by one and with their group.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.interop.kafka_server import KafkaCluster
from tests.interop.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop

SETTINGS = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
FORMATTERS = "org.apache.kafka.tools.consumer"
GROUPS = ("alone", "members", "reset")


@pytest.fixture(scope="module")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with KafkaCluster(kafka_jars, tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as cluster:
        tell(cluster.bootstrap, KafkaTools(kafka_jars, cluster.bootstrap))
        yield KafkaTools(kafka_jars, cluster.bootstrap)


@pytest.fixture(scope="module")
def quipu(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with RunningNode(tmp_path_factory.mktemp("quipu") / "data", settings=SETTINGS) as node:
        tell(node.bootstrap, KafkaTools(kafka_jars, node.bootstrap))
        yield KafkaTools(kafka_jars, node.bootstrap)


def tell(bootstrap: str, tools: KafkaTools) -> None:
    """The story."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("orders", 2), NewTopic("gone", 1)]).values():
        made.result(30)
    wait_for(lambda: {"orders", "gone"} <= admin.list_topics(timeout=10).topics.keys())
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce("orders", str(number), partition=number % 2)
    assert producer.flush(30) == 0
    commit(bootstrap, [TopicPartition("orders", 0, 3, "note"), TopicPartition("orders", 1, 4),
                       TopicPartition("gone", 0, 2)])
    read_as_member(bootstrap)
    tools.run("kafka-consumer-groups", "--group", "reset", "--topic", "orders",
              "--reset-offsets", "--to-earliest", "--execute")
    tools.run("kafka-consumer-groups", "--group", "reset", "--delete-offsets", "--topic",
              "orders:1")
    for deleted in admin.delete_topics(["gone"]).values():
        deleted.result(30)
    for deleted in admin.delete_consumer_groups(["members"]).values():
        deleted.result()
    commit(bootstrap, [TopicPartition("orders", 1, 5)])


def commit(bootstrap: str, offsets: list[TopicPartition]) -> None:
    """Commit from outside; "alone" has no members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "alone"})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def read_as_member(bootstrap: str) -> None:
    """Be the only member of a group, read everything, commit, and leave."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "members", "client.id": "reader",
        "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    found: list[object] = []
    while len(found) < 10:
        found += consumer.consume(10, 1)
    consumer.commit(asynchronous=False)
    consumer.close()


def printed(tools: KafkaTools, formatter: str) -> dict[str, list[Any]]:
    """What a formatter prints of each group, in order, without what differs from run to run."""
    shown = tools.run(
        "kafka-console-consumer", "--topic", "__consumer_offsets", "--from-beginning",
        "--formatter", f"{FORMATTERS}.{formatter}", "--timeout-ms", "8000")
    shown = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", shown)
    shown = re.sub(r'("(?:commit|currentState)Timestamp"):\d+', r"\1:0", shown)
    shown = re.sub(r'("leaderEpoch"):\d+', r"\1:0", shown)
    shown = re.sub(r'("topicId"):"[^"]+"', r'\1:"ID"', shown)
    groups: dict[str, list[Any]] = {}
    position, decoder = 0, json.JSONDecoder()
    while position < len(shown):
        record, position = decoder.raw_decode(shown, position)
        position += len(shown[position:]) - len(shown[position:].lstrip())
        groups.setdefault(record["key"]["data"]["group"], []).append(record)
    return {name: groups[name] for name in GROUPS if name in groups}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("formatter", ["OffsetsMessageFormatter", "GroupMetadataMessageFormatter"])
def test_the_formatters_print_the_same(
    kafka: KafkaTools, quipu: KafkaTools, formatter: str
) -> None:
    """K3: every offset and group, with versions and tombstones, in the same order."""
    expected = printed(kafka, formatter)
    assert expected.keys() >= {"members"}
    assert any(each["value"] is None for each in expected["members"])
    assert printed(quipu, formatter) == expected
