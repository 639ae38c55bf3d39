"""Records that lie, batches that unfold to gigabytes, and look-ups that must unpack them."""

import concurrent.futures
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from quipu.model.errors import Code
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.harness import lies
from tests.harness.lies import CODECS, COUNT, lying_batches, sealed, true_batch, varint
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import TOPIC, Bystander
from tests.hostile.conftest import MIB, anonymous_size

pytestmark = pytest.mark.xdist_group("hostile-records")
PRODUCE_VERSION, LIST_OFFSETS_VERSION = 9, 8
DECOMPRESSED_MAX = 32 * MIB
# The program, both threads with a batch each and a window of zstd as large, and the copies.
MEMORY_MAX = 160 * MIB + 4 * DECOMPRESSED_MAX


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    settings = {"message.max.bytes": str(4 * MIB),
                "message.decompressed.max.bytes": str(DECOMPRESSED_MAX),
                "queued.max.request.bytes": str(64 * MIB),
                "log.message.timestamp.after.max.ms": str(2**62)}
    with RunningNode(tmp_path_factory.mktemp("records") / "data", settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [TOPIC, "lies", "bombs", "times"]
        for future in admin.create_topics([NewTopic(name, 1) for name in topics]).values():
            future.result(30)
        yield running
        assert running.stop() == 0


def produced(connection: RawConnection, topic: str, batch: bytes) -> PartitionProduceResponse:
    part = PartitionProduceData(index=0, records=memoryview(batch))
    answer = connection.ask(ProduceRequest(acks=-1, timeout=10_000, topic_data=[
        TopicProduceData(name=topic, partition_data=[part])]), PRODUCE_VERSION)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def read_by_confluent(node: RunningNode, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g",
                         "check.crcs": True, "enable.auto.commit": False})
    found: list[int] = []
    deadline = time.monotonic() + 30
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found.append(message.offset() or 0)
    finally:
        consumer.close()
    return found


def read_by_kafka_python(node: RunningNode, topic: str, count: int) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, consumer_timeout_ms=5000)
    found: list[int] = []
    try:
        partition = KafkaPythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        for message in consumer:
            found.append(message.offset)
            if len(found) == count:
                break
    finally:
        consumer.close()
    return found


def test_stock_clients_read_past_every_lie_that_was_tried(node: RunningNode) -> None:
    """K2, K8, T5: no offset is missing or comes twice, while it lasts and after a restart."""
    stored = 0
    with Bystander(node) as bystander, RawConnection(node.host, node.port) as liar:
        for codec in CODECS:
            for name, lie in lying_batches(codec).items():
                answer = produced(liar, "lies", lie)
                assert answer.error_code == Code.INVALID_RECORD, (codec, name)
            assert produced(liar, "lies", true_batch(codec)).base_offset == stored
            stored += COUNT
    print(bystander.verdict())
    for restart in (False, True):
        if restart:
            node.kill()
            node.start()
        for read in (read_by_confluent, read_by_kafka_python):
            assert read(node, "lies", stored) == list(range(stored)), read


@pytest.mark.parametrize("codec", CODECS[1:])
def test_bombs_take_neither_memory_nor_time_from_others(node: RunningNode, codec: int) -> None:
    """K8: from many connections at once; some within the limit, so that they are unpacked."""
    large = sealed(b"", codec=codec, packed=lies.bomb(codec, 4 * DECOMPRESSED_MAX))
    within = sealed(b"", codec=codec, packed=lies.bomb(codec, 6 * MIB))
    codes: set[int] = set()
    peak = 0
    done = threading.Event()

    def throw() -> None:
        with RawConnection(node.host, node.port, timeout=60) as connection:
            for _ in range(4):
                for bomb in (large, within):
                    if len(bomb) < MIB:
                        codes.add(produced(connection, "bombs", bomb).error_code)

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, anonymous_size(node))

    watching = threading.Thread(target=watch)
    watching.start()
    with Bystander(node) as bystander, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: throw(), range(8)))
    done.set()
    watching.join()
    print(bystander.verdict(), f"peak {peak / MIB:.0f} MiB")
    assert codes <= {Code.MESSAGE_TOO_LARGE, Code.INVALID_RECORD}
    assert codes
    assert peak < MEMORY_MAX, f"{peak / MIB:.0f} MiB"
    with RawConnection(node.host, node.port) as connection:
        assert produced(connection, "bombs", true_batch(codec)).error_code == 0


def test_looks_into_large_batches_keep_nobody_waiting(node: RunningNode) -> None:
    """K2, K8: ListOffsets by time, of batches that unfold to many megabytes, in bulk."""
    count = 400_000
    body = b"".join(lies.record(index, timestamp=varint(index)) for index in range(count))
    for codec in (1, 4):
        batch = sealed(body, count=count, codec=codec, timestamp=1000,
                       max_timestamp=1000 + count - 1)
        with RawConnection(node.host, node.port, timeout=60) as connection:
            assert produced(connection, "times", batch).error_code == 0
    found: list[tuple[int, int]] = []

    def ask(worker: int) -> None:
        with RawConnection(node.host, node.port, timeout=60) as connection:
            for number in range(3):
                wanted = 1000 + count - 1 - worker * 10 - number
                found.append((wanted, looked_up(connection, wanted)))
                assert looked_up(connection, -3) == count - 1

    def looked_up(connection: RawConnection, timestamp: int) -> int:
        answer = connection.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(
            name="times", partitions=[
                ListOffsetsPartition(partition_index=0, timestamp=timestamp)])]),
            LIST_OFFSETS_VERSION)
        assert isinstance(answer, ListOffsetsResponse)
        (part,) = answer.topics[0].partitions
        return int(part.offset)

    with Bystander(node) as quiet:
        time.sleep(1)
    with Bystander(node) as bystander, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    print("alone:", quiet.verdict(), "beside:", bystander.verdict())
    assert len(found) == 8 * 3
    assert all(offset == wanted - 1000 for wanted, offset in found)
    ordered = sorted(bystander.seconds)
    assert ordered[len(ordered) * 99 // 100] < 1.0, bystander.verdict()  # one look takes 0.1 s
    assert anonymous_size(node) < MEMORY_MAX


def test_the_node_is_well_after_all_of_it(node: RunningNode, tmp_path: Path) -> None:
    """K8: it restarts, and what was stored is there."""
    node.kill()
    node.start()
    with RawConnection(node.host, node.port) as connection:
        assert produced(connection, TOPIC, true_batch()).error_code == 0
