"""Disks that change bytes under nodes that run: what is wrong is never served, and is repaired."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.record_batch import decode_records, parse_header
from tests.cluster.test_disks import asked
from tests.harness.cluster import RunningCluster
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection

RECORDS = 3000
SCRUBBED = {"log.scrub.interval.ms": "1000", "log.scrub.bytes.per.second": str(64 << 20)}
UNSCRUBBED = {"log.scrub.bytes.per.second": "0"}
CRC_END = 21  # of a batch: what its checksum covers begins here
FETCH_VERSION = 10  # the last in which nobody is sent to another node

pytestmark = pytest.mark.xdist_group("cluster-faults")


def value(number: int) -> bytes:
    return random.Random(number).randbytes(200)


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 20,
                         "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("t", value(number), partition=0)
    assert producer.flush(60) == 0


def segments(node: RunningNode) -> list[Path]:
    """The complete segments of the topic's log; the active one is the last."""
    (log,) = [each for each in node.directory.iterdir() if each.name.startswith("t-0")]
    return sorted(log.glob("*.log"))[:-1]


def flip(path: Path, position: int) -> None:
    """Change a byte of a file that a process may have mapped."""
    with path.open("r+b", buffering=0) as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def fetched(raw: RawConnection, offset: int) -> tuple[int, dict[int, bytes], int]:
    """The response of one node: its error, records by offset, and the next offset."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50_000)
    answer: Any = raw.ask(FetchRequest(max_wait=0, min_bytes=1, topics=[
        FetchTopic(topic="t", partitions=[part])]), FETCH_VERSION)
    found = answer.responses[0].partitions[0]
    records: dict[int, bytes] = {}
    data, position = found.records, 0
    while data is not None and position < len(data):
        header = parse_header(data, position)
        batch = data[position : position + header.size]
        assert crc32c(batch[CRC_END:]) == header.crc, f"offset {offset} fails its checksum"
        for record in decode_records(batch, size_max=1 << 20):
            assert record.value is not None
            records[record.offset] = record.value
        position, offset = position + header.size, header.last_offset + 1
    return found.error_code, records, offset


class Reader(threading.Thread):
    """Reads one node's copy again and again; what comes must be what was written."""

    def __init__(self, node: RunningNode) -> None:
        super().__init__()
        self.node = node
        self.passes = 0
        self.codes: set[int] = set()
        self.failure: BaseException | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            with RawConnection(self.node.host, self.node.port) as raw:
                while not self.stopped.is_set():
                    self._pass(raw)
        except BaseException as error:  # noqa: BLE001 told in the test's thread
            self.failure = error

    def _pass(self, raw: RawConnection) -> None:
        offset = 0
        while offset < RECORDS and not self.stopped.is_set():
            code, records, offset = fetched(raw, offset)
            for at, found in records.items():
                assert found == value(at), f"offset {at} is not what was written"
            if code:
                self.codes.add(code)
                time.sleep(0.05)
        self.passes += offset >= RECORDS


def metric(node: RunningNode, name: str) -> float:
    text = asked(node.http + "/metrics")[1]
    return next(float(line.split()[1]) for line in text.splitlines()
                if line.startswith(name + " "))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("settings", [SCRUBBED, UNSCRUBBED], ids=["scrubbed", "read"])
def test_what_a_disk_changes_is_repaired_from_the_rest_of_the_chain(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """T12, V9, V13: bytes of headers and of records, on every node, while each is read.  With the
    scrub off, reads find it.
    """
    with RunningCluster(tmp_path, settings=settings) as cluster:
        cluster.create_topic("t", segment_bytes="65536")
        fill(cluster.bootstrap)
        cluster.await_serving("a")
        if settings is UNSCRUBBED:  # what was read before is not looked at again
            for node in cluster.nodes.values():
                node.kill()
            damage(cluster)
            cluster.launch(cluster.nodes)
            cluster.await_serving("a")
        readers = [Reader(node) for node in cluster.nodes.values()]
        for reader in readers:
            reader.start()
        if settings is SCRUBBED:
            damage(cluster)
        try:
            for _ in cluster.until("every node has repaired what was changed"):
                if all(metric(node, "quipu_damaged_batches_total") >= 3
                       and metric(node, "quipu_damaged_batches") == 0
                       for node in cluster.nodes.values()):
                    break
            passes = [reader.passes for reader in readers]
            for _ in cluster.until("everyone has read everything once more"):
                if all(reader.passes > before + 1 or reader.failure
                       for reader, before in zip(readers, passes, strict=True)):
                    break
        finally:
            for reader in readers:
                reader.stopped.set()
                reader.join()
        for reader in readers:
            assert reader.failure is None, f"{reader.failure}{cluster.logs()}"
            assert reader.codes <= {Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER,
                                    Code.CORRUPT_MESSAGE}, reader.codes
        for node in cluster.nodes.values():
            assert metric(node, "quipu_repaired_batches_total") >= 3
            assert "Traceback" not in node.log_text()
        cluster.kill()
        assert cluster.differences("a", ["t"]) == ""


def damage(cluster: RunningCluster) -> None:
    """A record, a header, and the very first byte: in other segments on each node."""
    for number, node in enumerate(cluster.nodes.values()):
        paths = segments(node)
        assert len(paths) >= 9, paths
        flip(paths[number], paths[number].stat().st_size // 2)
        flip(paths[3 + number], paths[3 + number].stat().st_size - 3)
        flip(paths[6 + number], 0)


@pytest.mark.timeout(180)
def test_a_single_node_refuses_what_it_has_lost_and_serves_all_the_rest(tmp_path: Path) -> None:
    """T12, K8: with an error that says so; a consumer that seeks past it goes on.  So it is after
    a restart, and after a kill.
    """
    node = RunningNode(tmp_path / "data", settings={**SCRUBBED, "log.segment.bytes": "65536"})
    with node:
        fill(node.bootstrap)
        path = segments(node)[2]
        flip(path, path.stat().st_size // 2)
        deadline = time.monotonic() + 60
        while metric(node, "quipu_damaged_batches") == 0:
            assert time.monotonic() < deadline, node.log_text()
            time.sleep(0.1)
        lost = all_but_lost(node)
        assert 0 < len(lost) <= 100
        assert "damage" in asked(node.http + "/health/ready")[1]
        assert asked(node.http + "/health/ready")[0] == 200
        stock_consumer(node, lost)
        node.restart()
        assert all_but_lost(node) == lost
        node.kill()
        node.start()
        assert all_but_lost(node) == lost
        assert "Traceback" not in node.log_text()
        flip(path, path.stat().st_size // 2)  # restored from a copy
        node.restart()
        assert all_but_lost(node) == set()


def all_but_lost(node: RunningNode) -> set[int]:
    """Offsets that one node refuses for good; all others it gives, as they were written."""
    lost: set[int] = set()
    offset = 0
    with RawConnection(node.host, node.port) as raw:
        while offset < RECORDS:
            code, records, after = fetched(raw, offset)
            for at, found in records.items():
                assert found == value(at)
            if code == Code.KAFKA_STORAGE_ERROR:
                time.sleep(0.05)  # it is just being found out that nobody has it
                continue
            assert code in {0, Code.CORRUPT_MESSAGE}
            if code:
                lost.add(offset)
                after = offset + 1
            offset = after
    return lost


def stock_consumer(node: RunningNode, lost: set[int]) -> None:
    """A consumer of librdkafka reports the error, and continues after it once it seeks there."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g",
                         "check.crcs": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, max(0, min(lost) - 5))])
    read: list[int] = []
    problem = None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(read) < 20:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            problem = message.error()
            consumer.seek(TopicPartition("t", 0, max(lost) + 1))
            continue
        assert message.value() == value(message.offset())
        read.append(message.offset())
    consumer.close()
    assert problem is not None
    assert max(lost) + 1 in read
    assert not lost & set(read)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("chain", [1, 3])
def test_the_metadata_and_a_nodes_memory_are_written_anew(tmp_path: Path, chain: int) -> None:
    """T12, V13: what is damaged in the logs that are only read at a start is put right before
    there is one, be it with others or alone.
    """
    with RunningCluster(tmp_path, nodes=chain, settings=SCRUBBED) as cluster:
        cluster.create_topic("t", partitions=3)
        fill(cluster.bootstrap)
        for node in cluster.nodes.values():
            for number, log in enumerate(("__cluster-0", "__node-0"), 1):
                (path,) = (node.directory / log).glob("*.log")
                flip(path, path.stat().st_size // 2)
                for _ in cluster.until(f"{log} is written again"):
                    if node.log_text().count("written again from memory") == number:
                        break
                for _ in cluster.until("the damaged file is gone"):
                    if not path.exists():
                        break
        cluster.create_topic("u")
        cluster.kill()
        cluster.launch(cluster.nodes)
        cluster.await_serving("a")
        listed = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=20)
        assert {"t", "u"} <= listed.topics.keys()
        for node in cluster.nodes.values():
            assert "memory is damaged" not in node.log_text()
            assert metric(node, "quipu_damaged_batches") == 0
