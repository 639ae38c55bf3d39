"""Old records of diskless topics move to a tier that all nodes share; every node serves them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quipu.wire.record_batch import decode_records, parse_header
from tests.contract.control_plane.planes import postgres_url
from tests.harness.cluster import RunningCluster
from tests.harness.postgres import PostgresServer
from tests.harness.raw import RawConnection

COUNT = 400
EARLIEST_LOCAL = -4
SECONDS_MAX = 60.0
TIERED = {"diskless_enable": "true", "remote_storage_enable": "true", "local_retention_ms": "500",
          "segment_bytes": "16384", "segment_ms": "100"}


@pytest.fixture(params=["topic", "postgresql"])
def cluster(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, tmp_path: Path
) -> Iterator[RunningCluster]:
    """Three nodes; the metadata of segments is in a topic of theirs, or in PostgreSQL."""
    plane = postgres_url(postgres_server)  # a control plane belongs to one cluster
    url = "topic:" if request.param == "topic" else plane
    with RunningCluster(tmp_path, nodes=3, settings={
            "diskless.storage.system.enable": "true",
            "diskless.storage.url": (tmp_path / "objects").as_uri(),
            "diskless.control.plane.url": plane,
            "diskless.flush.interval.ms": "10",
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.url": (tmp_path / "segments").as_uri(),
            "rlmm.config.metadata.storage.url": url,
            "remote.log.manager.task.interval.ms": "200",
            "remote.log.orphan.grace.ms": "2000"}) as running:
        yield running


def write(cluster: RunningCluster, topic: str, first: int = 0, count: int = COUNT) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True,
                         "linger.ms": 5, "batch.num.messages": 20})
    for number in range(first, first + count):
        producer.produce(topic, value(number), partition=0)
        if number % 50 == 0:
            producer.flush(SECONDS_MAX)
    assert producer.flush(SECONDS_MAX) == 0


def value(number: int) -> bytes:
    return b"%d " % number + b"v" * 200


def local_start(cluster: RunningCluster, name: str, topic: str) -> int:
    """Where the records begin that are not only in the tier, as one node says."""
    with RawConnection("127.0.0.1", cluster[name].port) as raw:
        answer = raw.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(
                partition_index=0, timestamp=EARLIEST_LOCAL, current_leader_epoch=-1)])]), 9)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


def read_all(cluster: RunningCluster, name: str, topic: str, count: int) -> list[bytes]:
    """The first records of a topic, as one node sends them."""
    found: list[bytes] = []
    for _ in cluster.until(f"{name} sends {count} records"):
        request = FetchRequest(
            max_wait=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic(
                topic=topic, partitions=[FetchPartition(
                    partition=0, fetch_offset=len(found), partition_max_bytes=1 << 20)])])
        with RawConnection("127.0.0.1", cluster[name].port) as raw:
            answer = raw.ask(request, 10)
        assert isinstance(answer, FetchResponse)
        data = memoryview(bytes(answer.responses[0].partitions[0].records or b""))
        while data:
            size = parse_header(data).size
            for record in decode_records(data[:size], size_max=1 << 20):
                if record.offset == len(found):
                    found.append(record.value or b"")
            data = data[size:]
        if len(found) >= count:
            return found[:count]
    raise AssertionError


def test_every_node_serves_what_one_has_moved(cluster: RunningCluster) -> None:
    """D8, R8: over the boundary, on all nodes, also when the node that moves is killed."""
    cluster.create_topic("t", partitions=1, **TIERED)
    write(cluster, "t")
    names = list(cluster.nodes)
    for _ in cluster.until("all old records are in the tier"):
        if local_start(cluster, names[0], "t") == COUNT:
            break
    for name in names:
        assert read_all(cluster, name, "t", COUNT) == [value(each) for each in range(COUNT)]

    listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("t", timeout=20)
    leader = f"a-{listed.topics['t'].partitions[0].leader - 1}"
    assert leader in names
    cluster[leader].kill()
    others = [name for name in names if name != leader]
    write(cluster, "t", COUNT)
    for _ in cluster.until("another node moves the rest"):
        if local_start(cluster, others[0], "t") > COUNT:
            break
    for name in others:
        assert read_all(cluster, name, "t", 2 * COUNT) == [value(i) for i in range(2 * COUNT)]


def test_a_deleted_topic_leaves_no_segments(cluster: RunningCluster) -> None:
    """D7: its remote segments are deleted with it."""
    cluster.create_topic("gone", partitions=1, **TIERED)
    write(cluster, "gone")
    segments = cluster.directory / "segments"
    for _ in cluster.until("records are in the tier"):
        if local_start(cluster, next(iter(cluster.nodes)), "gone") == COUNT:
            break
    assert any(segments.rglob("*.log"))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(SECONDS_MAX)
    for _ in cluster.until("its segments are deleted"):
        if not any(segments.rglob("*.log")):
            break
        time.sleep(0.05)
