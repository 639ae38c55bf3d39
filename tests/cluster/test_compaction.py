"""Compacted topics with stock clients, on one node and on a chain."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.test_rot import metric
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode

EAGER = {"log.cleaner.backoff.ms": "100", "log.segment.bytes": "16384"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

pytestmark = pytest.mark.xdist_group("cluster")


def produce(bootstrap: str, pairs: list[tuple[str, str | None]], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10,
                         "enable.idempotence": True, **settings})
    for key, value in pairs:
        producer.produce("t", key=key, value=value, partition=0)
    assert producer.flush(60) == 0


def read_all(bootstrap: str) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record, as a new consumer reads them from the start."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g",
                         "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[tuple[int, str, str | None]] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            value = message.value()
            found.append((message.offset(), message.key().decode(),
                          None if value is None else value.decode()))
    finally:
        consumer.close()
    raise AssertionError("no end of the partition")


def table(found: list[tuple[int, str, str | None]]) -> dict[str, str]:
    rows: dict[str, str] = {}
    for _, key, value in found:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


def rounds(count: int, keys: int = 40) -> list[tuple[str, str | None]]:
    return [(f"k{key}", f"{number}-" + "x" * 40) for number in range(count) for key in range(keys)]


def create(bootstrap: str, settings: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, config=dict(settings))])["t"].result(30)


@pytest.mark.timeout(120)
def test_a_stock_client_sees_the_latest_values_and_tombstones_go(tmp_path: Path) -> None:
    """K5: a compacted topic keeps the latest value of each key; a tombstone is seen, and goes after
    delete.retention.ms; a record without a key is refused; all of it survives a kill.
    """
    node = RunningNode(tmp_path / "data", settings=EAGER)
    with node:
        create(node.bootstrap, {**COMPACTED, "delete.retention.ms": "2000"})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            produce(node.bootstrap, rounds(10), **{"compression.type": codec})
        produce(node.bootstrap, [("k1", None), ("k2", None)])
        produce(node.bootstrap, [(f"filler{number}", "y" * 500) for number in range(60)])
        wanted = {**{f"k{key}": "9-" + "x" * 40 for key in range(40) if key not in {1, 2}},
                  **{f"filler{number}": "y" * 500 for number in range(60)}}
        deadline = time.monotonic() + 60
        while metric(node, "quipu_log_cleaner_passes_total") == 0 or (
                len(found := read_all(node.bootstrap)) > 150):
            assert time.monotonic() < deadline, node.log_text()
            time.sleep(0.1)
        assert table(found) == wanted
        node.kill()
        node.start()
        assert table(read_all(node.bootstrap)) == wanted
        while None in {value for _, _, value in found}:
            found = read_all(node.bootstrap)
            assert time.monotonic() < deadline, node.log_text()
            time.sleep(0.2)
        assert table(found) == wanted
        assert {offset for offset, _, _ in found} <= set(range(2062))
        with pytest.raises(KafkaException) as raised:
            refused(node.bootstrap)
        assert raised.value.args[0].code() == KafkaError.INVALID_RECORD
        assert "Traceback" not in node.log_text()


def refused(bootstrap: str) -> None:
    """Produce a record without a key; raises what the broker says of it."""
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000})
    producer.produce("t", value="keyless", partition=0,
                     on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    if errors[0] is not None:
        raise KafkaException(errors[0])


@pytest.mark.timeout(240)
def test_members_of_a_chain_compact_on_their_own_and_agree(tmp_path: Path) -> None:
    """K5, V5: the head is killed while logs are compacted, and a member joins after compaction;
    every member serves the same table, and `quipu log diff` says that they are equal.
    """
    slow = {**EAGER, "log.cleaner.io.max.bytes.per.second": "2000000"}
    with RunningCluster(tmp_path, settings=slow) as cluster:
        cluster.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01",
                             min_insync_replicas="2", delete_retention_ms="500")
        produce(cluster.bootstrap, rounds(60))
        for _ in cluster.until("the head compacts"):
            if metric(cluster["a-0"], "quipu_log_cleaner_passes_total") > 0:
                break
        produce(cluster.bootstrap, rounds(60))
        cluster["a-0"].kill()
        produce(cluster.bootstrap, [("k1", None), *rounds(20)[2:]])
        cluster["a-0"].start()
        cluster.await_serving("a")
        produce(cluster.bootstrap, [(f"last{number}", "z" * 1000) for number in range(30)])
        for _ in cluster.until("every member has compacted"):
            if all(metric(node, "quipu_log_cleaner_passes_total") > 0
                   for node in cluster.nodes.values()):
                break
        cluster.add("a-3").start()
        cluster.quipu("chain", "extend", "a", "a-3")
        cluster.chains["a"].append("a-3")
        cluster.await_serving("a")
        wanted = {**{f"k{key}": "19-" + "x" * 40 for key in range(40)},
                  **{f"last{number}": "z" * 1000 for number in range(30)}}
        assert table(read_all(cluster.bootstrap)) == wanted
        for node in cluster.nodes.values():
            assert "Traceback" not in node.log_text()
        cluster.kill()
        assert cluster.differences("a", ["t"]) == ""
        for name in ("a-0", "a-1", "a-2"):  # each serves all of it by itself
            assert (cluster.directory / name).exists()
