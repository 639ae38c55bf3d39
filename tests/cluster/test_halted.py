"""A replica that cannot go on with what the others have: it halts alone, and they go on."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.test_failed_logs import await_in_sync, http
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode

COUNT = 100
BOTH = ["b-0", "b-1"]

pytestmark = pytest.mark.xdist_group("cluster-faults")


def produce(cluster: RunningCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all",
                         "message.timeout.ms": 60_000})
    failed = []
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=0,
                         callback=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def back_up(node: RunningNode, kept: Path) -> None:
    """What a node that is down has of topic t, and what it remembers of its logs."""
    for path in (*node.directory.glob("t-0.*"), node.directory / "__node-0"):
        shutil.copytree(path, kept / path.name)


def restore(node: RunningNode, kept: Path) -> None:
    for path in kept.iterdir():
        shutil.rmtree(node.directory / path.name)
        shutil.copytree(path, node.directory / path.name)


@pytest.mark.timeout(240)
def test_a_halted_replica_holds_up_nobody_and_comes_back(tmp_path: Path) -> None:
    """V13, V14: nothing committed is cut; other partitions, and its node's part in them, go on;
    once its log was removed it is a replica again.
    """
    with RunningCluster(tmp_path, nodes=2, chains=("a", "b")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        members = [cluster.node_id(name) for name in BOTH]
        wanted = [NewTopic(topic, num_partitions=1, replica_assignment=[members],
                           config={"min.insync.replicas": "1"}) for topic in ("t", "u")]
        for future in admin.create_topics(wanted, request_timeout=20).values():
            future.result(30)
        produce(cluster, "t")
        head, tail = cluster["b-0"], cluster["b-1"]
        head.kill()
        back_up(head, tmp_path / "kept")
        head.start()
        cluster.await_serving("b")
        produce(cluster, "t")
        produce(cluster, "u")
        tail.stop()  # it remembers more to be committed than the other will have
        cluster.await_serving("b", 1)
        head.kill()
        restore(head, tmp_path / "kept")
        head.start()
        produce(cluster, "t")
        logs = {path: path.read_bytes() for path in tail.directory.glob("t-0.*/*.log")}
        tail.start()

        await_in_sync(cluster, "u", 0, BOTH)  # which it could not, before it was taken off t
        cluster.await_serving("b")
        for _ in cluster.until("it is told that a partition has halted"):
            if "quipu_partitions_halted 1" in http(tail, "/metrics"):
                break
        assert cluster.in_sync("t", 0) == ["b-0"]
        assert {path: path.read_bytes()[:len(data)] for path, data in logs.items()} == logs
        assert "is committed; compare the logs" in tail.log_text()
        produce(cluster, "t")
        produce(cluster, "u")

        tail.kill()
        for path in tail.directory.glob("t-0.*"):
            shutil.rmtree(path)
        shutil.rmtree(tail.directory / "__node-0")
        tail.start()
        await_in_sync(cluster, "t", 0, BOTH)
        await_in_sync(cluster, "u", 0, BOTH)
        cluster.await_serving("b")
        produce(cluster, "t")
        cluster.kill()
        assert cluster.differences("b", ["t", "u"]) == ""
