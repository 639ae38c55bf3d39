"""A node whose disk was emptied while every other that had its records was down."""

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.cluster import QUICK, RunningCluster

COUNT = 200
COLD_SECONDS = int(QUICK["chain.cold.start.wait.ms"]) / 1000

pytestmark = pytest.mark.xdist_group("cluster-faults")


def produce(cluster: RunningCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all",
                         "enable.idempotence": True, "message.timeout.ms": 60_000})
    failed = []
    for number in numbers:
        producer.produce("t", b"%d" % number, partition=0,
                         callback=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def consume(cluster: RunningCluster, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g",
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def leader(cluster: RunningCluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster["a-0"].bootstrap})
    return int(admin.list_topics("t", timeout=20).topics["t"].partitions[0].leader)


@pytest.mark.timeout(180)
def test_an_emptied_node_does_not_serve_before_one_that_has_the_records(tmp_path: Path) -> None:
    """V7, V14: it waits for the other, gets everything from it, and nothing is lost."""
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        members = [cluster.node_id("b-0"), cluster.node_id("b-1")]
        for future in admin.create_topics([NewTopic(
                "t", num_partitions=1, replica_assignment=[members])], request_timeout=20).values():
            future.result(30)
        produce(cluster, range(COUNT))
        for name in ("b-0", "b-1"):
            cluster[name].kill()
        shutil.rmtree(cluster["b-1"].directory)
        cluster["b-1"].start()

        until = time.monotonic() + COLD_SECONDS + 3.0
        while time.monotonic() < until:
            assert leader(cluster) == -1, cluster.logs()
            time.sleep(0.2)
        assert "another data directory" in cluster.logs(1 << 20)

        cluster["b-0"].start()
        cluster.await_serving("b")
        produce(cluster, range(COUNT, 2 * COUNT))
        assert consume(cluster, 2 * COUNT) == [b"%d" % number for number in range(2 * COUNT)]
        cluster.kill()
        assert cluster.differences("b", ["t"]) == ""
