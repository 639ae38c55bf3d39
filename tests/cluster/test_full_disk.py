"""Disks without room: of a single node, and of each member of a chain in turn."""

import contextlib
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from quipu.model.errors import Code
from quipu.wire.messages.k00_produce import ProduceResponse
from tests.cluster.test_disks import asked
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.harness.small_disk import small_disk
from tests.hostile.bystander import PRODUCE_VERSION, produce_request

SETTINGS = {"log.segment.bytes": str(1 << 20), "log.flush.interval.messages": "1"}

pytestmark = pytest.mark.xdist_group("cluster-faults")


def produced(raw: RawConnection, value: bytes) -> int:
    response = raw.ask(produce_request("t", value), PRODUCE_VERSION)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def values(bootstrap: str, count: int) -> list[bytes]:
    """The first records of the topic, read by a stock consumer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader",
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            found.append(message.value())
    consumer.close()
    return found


def commit(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g",
                         "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def commit_all(bootstrap: str, count: int) -> None:
    """Commit again and again: a page of the group's log may still have room."""
    for offset in range(count):
        commit(bootstrap, offset)


def create(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("t", b"first", partition=0)
    assert producer.flush(30) == 0


def await_code(raw: RawConnection, code: int, node: RunningNode) -> None:
    deadline = time.monotonic() + 60
    while produced(raw, b"again") != code:
        assert time.monotonic() < deadline, node.log_text()
        time.sleep(0.2)


@pytest.mark.timeout(240)
def test_a_full_disk_refuses_writes_and_nothing_else(tmp_path: Path) -> None:
    """K8, T12: acknowledged records can be read, stock clients get errors that they retry, and
    writes, commits and topics continue by themselves when there is space; so does a node that is
    started on a full disk.
    """
    with small_disk(tmp_path / "disk") as disk:
        node = disk.give(RunningNode(disk.path / "data", settings=SETTINGS))
        with node:
            create(node.bootstrap)
            time.sleep(6)  # the reserve is kept
            expected = [b"first"]
            with RawConnection(node.host, node.port) as raw:
                disk.fill()
                for number in range(3000):
                    code = produced(raw, b"%d" % number + bytes(500))
                    if code:
                        break
                    expected.append(b"%d" % number + bytes(500))
                assert code == Code.KAFKA_STORAGE_ERROR
                assert values(node.bootstrap, len(expected)) == expected
                with pytest.raises(KafkaException):
                    commit_all(node.bootstrap, 500)
                deadline = time.monotonic() + 30
                while asked(node.http + "/health/ready")[0] != 503:
                    assert time.monotonic() < deadline, node.log_text()
                    time.sleep(0.2)
                assert "No space left" in asked(node.http + "/health/ready")[1]
                assert asked(node.http + "/health/live")[0] == 200
                assert "quipu_disk_refusals_total 0" not in asked(node.http + "/metrics")[1]
                disk.free()
                await_code(raw, 0, node)
                commit(node.bootstrap, 1)
            found = values(node.bootstrap, len(expected) + 1)
            assert found == [*expected, b"again"]
            deadline = time.monotonic() + 30
            while asked(node.http + "/health/ready")[0] != 200:
                assert time.monotonic() < deadline, node.log_text()
                time.sleep(0.2)
            disk.fill()
            node.kill()
            node.start()
            assert values(node.bootstrap, len(found)) == found
            disk.free()
            with RawConnection(node.host, node.port) as raw:
                await_code(raw, 0, node)
            assert values(node.bootstrap, len(found) + 1) == [*found, b"again"]
            disk.fill()
            assert node.stop() == 0
            assert "Traceback" not in node.log_text()
            assert "offline" not in node.log_text()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_chain_waits_for_a_member_without_room(tmp_path: Path, place: int) -> None:
    """K8, V13: nobody leaves; reads go on everywhere, and writes when there is room."""
    cluster = RunningCluster(tmp_path, settings=SETTINGS)
    names = list(cluster.nodes)
    victim = cluster[names[place]]
    with small_disk(tmp_path / "disk") as disk:
        disk.give(victim)
        with cluster:
            cluster.create_topic("t")
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0,
                                 "enable.idempotence": True, "message.timeout.ms": 120_000})
            kept: list[bytes] = []

            def told(error: object, message: object) -> None:
                assert error is None
                kept.append(message.value())  # type: ignore[attr-defined]

            for number in range(200):
                producer.produce("t", b"%d" % number, partition=0, on_delivery=told)
            assert producer.flush(60) == 0
            disk.fill()
            for number in range(200, 1200):
                producer.produce("t", b"%d" % number + bytes(300), partition=0, on_delivery=told)
            producer.flush(8)
            before = len(kept)
            assert before < 1200
            assert values(cluster.bootstrap, before)[:before] == kept[:before]
            assert set(cluster.states("a").values()) == {"serving"}
            assert len(cluster.states("a")) == 3
            disk.free()
            assert producer.flush(90) == 0, cluster.logs()
            expected = [b"%d" % number + bytes(300 if number >= 200 else 0)
                        for number in range(1200)]
            assert kept == expected
            assert values(cluster.bootstrap, 1200) == expected
            assert "Traceback" not in cluster.logs(1 << 20)
            cluster.kill()


def fill_metadata(admin: AdminClient) -> int:
    """Create topics until that is refused: not even a block of the metadata's has room then."""
    for number in range(1000):
        with contextlib.suppress(KafkaException):
            admin.create_topics([NewTopic(f"more-{number}", 1)])[f"more-{number}"].result(30)
            continue
        return number
    raise AssertionError("the disk is not full")


@pytest.mark.timeout(240)
def test_what_makes_room_works_without_any(tmp_path: Path) -> None:
    """K8, T12: topics are deleted and settings changed, nothing new is begun, a group that cannot
    be deleted is there, and the node starts, however often.
    """
    with small_disk(tmp_path / "disk") as disk:
        node = disk.give(RunningNode(disk.path / "data", settings=SETTINGS))
        with node:
            create(node.bootstrap)
            admin = AdminClient({"bootstrap.servers": node.bootstrap})
            for topic in ("old", "older"):
                admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
            commit(node.bootstrap, 1)
            time.sleep(6)  # the reserve is kept
            disk.fill()
            with pytest.raises(KafkaException):
                commit_all(node.bootstrap, 500)
            assert fill_metadata(admin) > 0
            found = committed(node.bootstrap)
            assert found > 0
            with pytest.raises(KafkaException):
                admin.delete_consumer_groups(["g"])["g"].result(30)
            assert committed(node.bootstrap) == found
            listed = admin.list_topics(timeout=30).topics
            assert "t" in listed
            admin.delete_topics(["old"])["old"].result(30)
            resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[
                ConfigEntry("retention.ms", "100000000",
                            incremental_operation=AlterConfigOpType.SET)])
            admin.incremental_alter_configs([resource])[resource].result(30)
            for _ in range(3):
                node.kill()
                node.start()
                assert committed(node.bootstrap) == found
                with pytest.raises(KafkaException):
                    admin.create_topics([NewTopic("new", 1)])["new"].result(30)
            assert node.stop() == 0
            node.start()
            admin.delete_topics(["older"])["older"].result(30)
            disk.free()
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(KafkaException):
                    admin.create_topics([NewTopic("new", 1)])["new"].result(30)
                    break
                assert time.monotonic() < deadline, node.log_text()
                time.sleep(0.2)
            listed = admin.list_topics(timeout=30).topics
            assert {"old", "older"}.isdisjoint(listed)
            assert "Traceback" not in node.log_text()
            assert "offline" not in node.log_text()


def committed(bootstrap: str) -> int:
    """What the group "g" has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        (found,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
        return int(found.offset)
    finally:
        consumer.close()
