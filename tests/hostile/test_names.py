"""Topics with every name that Kafka allows: created by one request, used, deleted, made again."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.harness.command import run_quipu
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander

LONG = [letter * size for letter, size in zip("abcde", (100, 101, 230, 231, 249), strict=True)]
NAMES = [".x", "..x", "...", ".lock", "-", "_", "-0", "a-0", "x.deleted", "x-0.1-1.deleted",
         "__node-0", "lost-found", *LONG]
VERSION = 12


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "data") as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(30)
        yield running


def mention(node: RunningNode, names: list[str]) -> dict[str, int]:
    """One Metadata request with auto-creation; the error of each topic."""
    host, _, port = node.bootstrap.rpartition(":")
    with contextlib.closing(RawConnection(host, int(port))) as connection:
        answer = connection.ask(MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=True), VERSION)
        return {topic.name or "": topic.error_code for topic in answer.topics}


def produce(node: RunningNode, names: list[str], value: bytes) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all",
                         "message.timeout.ms": 30_000})
    failed: list[object] = []
    for name in names:
        producer.produce(name, value, partition=0, on_delivery=lambda error, _: failed.append(
            error) if error is not None else None)
    assert producer.flush(40) == 0
    assert failed == []


def values(node: RunningNode, name: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "unused",
                         "enable.auto.commit": False, "enable.partition.eof": False})
    try:
        place = TopicPartition(name, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < end and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(100, timeout=0.5)
                      if message.error() is None]
        return found
    finally:
        consumer.close()


@pytest.mark.timeout(180)
def test_no_name_stops_a_node_or_shows_what_was_deleted(node: RunningNode) -> None:
    """K8, V13: each is served, deleted, created again under the same name without a trace of the
    old one, and there after kill -9 and after a stop in order; a bystander notices nothing.
    """
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    with Bystander(node) as bystander:
        assert mention(node, NAMES).keys() == set(NAMES)
        for _ in range(100):
            if not any(mention(node, NAMES).values()):
                break
            time.sleep(0.1)
        assert not any(mention(node, NAMES).values())
        produce(node, NAMES, b"old")
        for name, future in admin.delete_topics(NAMES).items():
            assert future.result(30) is None, name
        for future in admin.create_topics(
                [NewTopic(name, num_partitions=2) for name in NAMES]).values():
            future.result(30)
        assert {name: values(node, name) for name in NAMES} == {name: [] for name in NAMES}
        produce(node, NAMES, b"new")
    print(bystander.verdict())
    for end in (node.kill, node.stop):
        end()
        node.start()
        with Bystander(node) as bystander:
            assert {name: values(node, name) for name in NAMES} == {
                name: [b"new"] for name in NAMES}
        print(bystander.verdict())
    assert "Traceback" not in node.log_text()


@pytest.mark.timeout(60)
def test_names_that_kafka_refuses_are_refused(node: RunningNode) -> None:
    """K8: with INVALID_TOPIC_EXCEPTION, and nothing is left of them."""
    wrong = ["", ".", "..", "a/b", "a b", "a\0b", "\u00e9", "f" * 250, "__node", "__cluster"]
    assert set(mention(node, wrong).values()) == {17}
    assert not any(mention(node, [TOPIC]).values())


@pytest.mark.timeout(60)
def test_the_log_tools_tell_which_topic_a_directory_is_of(node: RunningNode) -> None:
    """T9: though the directory's name has room for a part of it only."""
    name = LONG[-1]
    mention(node, [name])
    produce(node, [name], b"x")
    node.stop()
    (directory,) = node.directory.glob("eee*-0.*")
    assert name not in directory.name
    done = run_quipu("log", "show", str(directory)).out
    assert f"{name}-0: 1 segment" in done
    assert f"{name}-0: 1 segment" in run_quipu(
        "log", "show", str(node.directory / f"{name}-0")).out
