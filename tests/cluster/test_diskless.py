"""Diskless topics in a cluster of processes: PostgreSQL orders, a shared directory stores."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.cluster import RunningCluster
from tests.harness.here import batch_of, produce
from tests.harness.postgres import PostgresServer
from tests.harness.progress import wait_for
from tests.harness.raw import RawConnection


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def cluster(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    path = tmp_path_factory.mktemp("diskless")
    with RunningCluster(path, nodes=3, settings={
            "diskless.storage.system.enable": "true",
            "diskless.storage.url": (path / "objects").as_uri(),
            "diskless.control.plane.url": postgres.url,
            "diskless.flush.interval.ms": "20"}) as running:
        yield running


def consume(bootstrap: str, topic: str, partition: int, end: int) -> list[tuple[int, bytes]]:
    """All records of a partition below `end`, by a stock consumer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g",
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, bytes]] = []

    def more() -> bool:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            found.append((offset, value))
        return len(found) >= end

    try:
        wait_for(more, progress=lambda: len(found))
    finally:
        consumer.close()
    return found


def flush(producer: Producer) -> None:
    """Wait until every record has its outcome."""
    wait_for(lambda: producer.flush(0.5) == 0, progress=lambda: len(producer))


def test_writers_on_three_nodes_share_one_order(cluster: RunningCluster) -> None:
    """D1, D3, D33: any node takes writes of one partition: no gap, no duplicate, one order."""
    cluster.create_topic("one", diskless_enable="true")
    answers: dict[int, bytes] = {}
    failures: list[object] = []

    def write(number: int, name: str) -> None:
        node = cluster[name]
        with RawConnection(node.host, node.port) as raw:
            for sequence in range(40):
                value = b"%d-%d" % (number, sequence)
                response: Any = raw.ask(produce("one", batch_of(
                    value, producer_id=1000 + number, producer_epoch=0, base_sequence=sequence),
                    acks=-1), 9)
                part = response.responses[0].partition_responses[0]
                if part.error_code != 0 or part.base_offset in answers:
                    failures.append((name, sequence, part))
                answers[part.base_offset] = value

    threads = [threading.Thread(target=write, args=each) for each in enumerate(cluster.nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(answers) == list(range(120))
    for node in cluster.nodes.values():
        found = consume(node.bootstrap, "one", 0, 120)
        assert dict(found) == answers
        assert [offset for offset, _ in found] == list(range(120))


def test_stock_clients_and_groups(cluster: RunningCluster) -> None:
    """D1, D5, K10: produced by an idempotent producer, read by a group, through all leaders."""
    cluster.create_topic("stock", partitions=6, diskless_enable="true")
    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("stock", timeout=20)
    partitions = listed.topics["stock"].partitions
    assert {partition.leader for partition in partitions.values()} == {1, 2, 3}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True,
                         "compression.type": "lz4", "linger.ms": 5})
    errors: list[object] = []
    for number in range(600):
        producer.produce("stock", b"%d" % number, partition=number % 6, on_delivery=lambda error, _:
                         errors.append(error) if error is not None else None)
        producer.poll(0)
    flush(producer)
    assert errors == []
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["stock"])
    found: set[bytes] = set()

    def more() -> bool:
        found.update(message.value() or b"" for message in consumer.consume(500, 0.5)
                     if message.error() is None)
        return len(found) >= 600

    wait_for(more, progress=lambda: len(found))
    assert consumer.get_watermark_offsets(TopicPartition("stock", 0), timeout=20) == (0, 100)
    consumer.close()


def test_a_killed_node_takes_nothing_with_it(cluster: RunningCluster) -> None:
    """D33: other nodes are shown as leaders at once, and serve every acknowledged record."""
    cluster.create_topic("killed", partitions=3, diskless_enable="true")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True,
                         "linger.ms": 5})
    acknowledged: list[bytes] = []

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())

    for number in range(300):
        producer.produce("killed", b"%d" % number, partition=number % 3, on_delivery=delivered)
        producer.poll(0.002)
        if number == 100:
            cluster["a-2"].kill()
    flush(producer)
    assert len(acknowledged) == 300
    found = [value for partition in range(3)
             for _, value in consume(cluster.bootstrap, "killed", partition, 100)]
    assert sorted(found) == sorted(acknowledged)
    cluster["a-2"].start()
    cluster.await_serving("a")


def test_a_cluster_with_sqlite_refuses_diskless_topics(tmp_path: Path) -> None:
    """D2: with the reason, and what to set."""
    with RunningCluster(tmp_path, nodes=1, settings={
            "diskless.storage.system.enable": "true"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = NewTopic("t", num_partitions=1, config={"diskless.enable": "true"})
        with pytest.raises(KafkaException, match=r"SQLite serves one node alone"):
            admin.create_topics([wanted])["t"].result(30)
