"""Diskless topics as a user has them: one node, its commands, a stock client, a restart."""

import json
import time
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.command import Result, run_quipu
from tests.harness.node import RunningNode

SECONDS_MAX = 60.0


def quipu(node: RunningNode, *words: str) -> Result:
    done = run_quipu(*words, "--bootstrap", node.bootstrap)
    assert done.code == 0, done
    return done


def read(node: RunningNode, count: int) -> list[bytes]:
    """The first records of partition 0, by a stock consumer."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("events", 0, 0)])
    found: list[bytes] = []
    ends = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < ends, len(found)
        for message in consumer.consume(count, 1.0):
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    consumer.close()
    return found


def test_a_diskless_topic_on_one_node(tmp_path: Path) -> None:
    """D1: created, described with its size, read after a kill; metrics count its objects."""
    with RunningNode(tmp_path / "data", settings={
            "diskless.storage.system.enable": "true", "diskless.flush.interval.ms": "20"}) as node:
        quipu(node, "topic", "create", "events", "--partitions", "2", "-c", "diskless.enable=true")
        refused = run_quipu("topic", "alter", "events", "-c", "diskless.enable=false",
                            "--bootstrap", node.bootstrap)
        assert refused.code != 0
        assert "only when a topic is created" in refused.err
        producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
        for number in range(100):
            producer.produce("events", b"%d" % number, partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        described = json.loads(quipu(node, "topic", "describe", "events", "--json").out)
        first, second = described["partitions"]
        assert described["diskless"] is True
        assert (first["end"], first["isr"], first["local_bytes"]) == (100, first["replicas"], 0)
        assert first["object_bytes"] > 100
        assert second["object_bytes"] == 0
        shown = quipu(node, "topic", "describe", "events").out
        assert "diskless" in shown.splitlines()[0]
        assert "OBJECT BYTES" in shown
        node.kill()
        node.start()
        assert read(node, 100) == [b"%d" % number for number in range(100)]
        with urlopen(f"{node.http}/metrics") as page:
            lines = page.read().decode().splitlines()
        assert any(line.startswith("quipu_diskless_gets_total ") and not line.endswith(" 0")
                   for line in lines)
