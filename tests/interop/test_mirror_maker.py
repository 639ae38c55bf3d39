"""MirrorMaker 2 between a Kafka and another broker, both ways at once: another Kafka, and Quipu."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.harness.processes import LineProcess
from tests.harness.progress import wait_for
from tests.interop.brokers import NAMES, Broker
from tests.interop.conftest import Running
from tests.interop.connect import MIRROR_MAKER, start, write_properties

pytestmark = pytest.mark.interop

PARTITIONS = 2
RECORDS = 60
SETTINGS = {"retention.ms": "123456789", "max.message.bytes": "654321",
            "cleanup.policy": "compact,delete"}
EVERY_SECOND = (
    "refresh.topics", "sync.topic.configs", "sync.topic.acls", "refresh.groups",
    "sync.group.offsets", "emit.checkpoints")


@pytest.fixture(params=NAMES)
def other(request: pytest.FixtureRequest, running: Running) -> Broker:
    """What a Kafka of one node is mirrored to and from."""
    return running(request.param, 3)


@contextmanager
def mirror_maker(
    brokers: dict[str, Broker], jars: Path, topic: str, scratch: Path
) -> Iterator[LineProcess]:
    """MirrorMaker from each to the other, with its defaults but for intervals."""
    settings = {"clusters": "left, right", "plugin.discovery": "service_load",
                "offset.storage.replication.factor": "1", "status.storage.replication.factor": "1",
                "config.storage.replication.factor": "1", "replication.factor": "-1",
                "checkpoints.topic.replication.factor": "1",
                "offset-syncs.topic.replication.factor": "1", "offset.lag.max": "0",
                "emit.heartbeats.enabled": "false",
                "heartbeats.topic.replication.factor": "1", "sync.group.offsets.enabled": "true",
                "sync.topic.configs.enabled": "true", "sync.topic.acls.enabled": "true"}
    settings |= {f"{name}.interval.seconds": "1" for name in EVERY_SECOND}
    for name, broker in brokers.items():
        settings |= {f"{name}.bootstrap.servers": broker.bootstrap,
                     f"{name}.offset.flush.interval.ms": "500"}  # offsets are synced then
    for source, target in (("left", "right"), ("right", "left")):
        settings |= {f"{source}->{target}.enabled": "true", f"{source}->{target}.topics": topic,
                     f"{source}->{target}.groups": f"group-of-{topic}"}
    process = start(jars, MIRROR_MAKER, write_properties(scratch / "mm2.properties", settings))
    try:
        yield process
    finally:
        process.kill()


def prepare(name: str, broker: Broker, topic: str) -> None:
    """A topic with settings and records, and a group that has read all of it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, config=SETTINGS)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, f"{name} {number}", key=f"{number}", headers={"from": name},
                         partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"group-of-{topic}",
                         "enable.auto.commit": False})

    def is_committed() -> bool:
        with contextlib.suppress(KafkaException):  # Kafka's coordinators are not there at once
            consumer.commit(offsets=[TopicPartition(topic, partition, RECORDS // PARTITIONS)
                                     for partition in range(PARTITIONS)], asynchronous=False)
            return True
        return False

    wait_for(is_committed, pause=0.2)
    consumer.close()


def copied(broker: Broker, topic: str) -> list[tuple[bytes, bytes, bytes]]:
    """The records of a topic as a client reads them, by partition."""
    found = []
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused",
                         "enable.partition.eof": True})
    for partition in range(PARTITIONS):
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error():
                break
            if message is not None:
                found.append((message.key(), message.value(), message.headers()[0][1]))
    consumer.close()
    return found


def settings_of(broker: Broker, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if topic not in admin.list_topics(timeout=30).topics:
        return {}
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: found[name].value for name in SETTINGS}


def offsets_of(broker: Broker, topic: str, group: str) -> dict[int, int]:
    """What a group has committed."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, number) for number in range(PARTITIONS)])
    found = admin.list_consumer_group_offsets([wanted])[group].result(30)
    return {each.partition: each.offset for each in found.topic_partitions if each.offset >= 0}


@pytest.mark.timeout(400)
def test_mirror_maker_copies_both_ways(
    running: Running, other: Broker, topic: str, kafka_jars: Path, tmp_path: Path
) -> None:
    """K1, K2, K3, K9: records with keys and headers, settings of topics and offsets of groups are
    copied from each to the other; MirrorMaker logs no error, neither for settings nor for ACLs.
    """
    brokers = {"left": running("kafka", 1), "right": other}
    for name, broker in brokers.items():
        prepare(name, broker, topic)
    end = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    said: list[str] = []
    with mirror_maker(brokers, kafka_jars, topic, tmp_path) as process:
        for source, target in (("left", "right"), ("right", "left")):
            name, broker = f"{source}.{topic}", brokers[target]
            wait_for(lambda n=name, b=broker: settings_of(b, n) == SETTINGS,  # type: ignore[misc]
                     what=process.tail, pause=0.3)
            wait_for(lambda n=name, b=broker: offsets_of(  # type: ignore[misc]
                b, n, f"group-of-{topic}") == end, what=process.tail, pause=0.3)
            assert sorted(copied(broker, name)) == sorted(copied(brokers[source], topic))
            assert len(copied(broker, name)) == RECORDS
        said = process.take_lines()
    assert [line for line in said if "ERROR" in line] == []
