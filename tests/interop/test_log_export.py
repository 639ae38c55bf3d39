"""What `quipu log export` writes, read by Kafka's own kafka-dump-log, and by a real Kafka."""

import contextlib
import json
import random
import re
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.command import run_quipu
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.interop.kafka_server import KafkaCluster
from tests.interop.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop

RECORDS = 4_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 100_000


def produce(bootstrap: str, first: int, count: int) -> None:
    """Records with keys, headers and timestamps that do not grow, by every codec in turn."""
    for start in range(first, first + count, 100):
        producer = Producer({
            "bootstrap.servers": bootstrap, "compression.type": CODECS[start // 100 % len(CODECS)],
            "enable.idempotence": True})
        for number in range(start, min(start + 100, first + count)):
            value = random.Random(number).randbytes(60).hex()
            producer.produce(
                "orders", f"value {number} {value}", f"key {number % 50}", partition=0,
                headers={"n": str(number)}, timestamp=1_700_000_000_000 + number * 7_919 % 100_000)
        assert producer.flush(30) == 0


def consume(bootstrap: str) -> list[tuple[int, bytes | None, bytes | None, tuple[int, int]]]:
    """All records of the partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any"})
    ends: list[tuple[int, int]] = []

    def is_led() -> bool:
        with contextlib.suppress(KafkaException):  # a node that has just started
            ends.append(consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30))
        return bool(ends)

    wait_for(is_led, pause=0.2)
    ((low, high),) = ends
    consumer.assign([TopicPartition("orders", 0, low)])
    found = []
    while not found or found[-1][0] < high - 1:
        for message in consumer.consume(500, 10):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key(), message.value(), message.timestamp()))
    consumer.close()
    return found


def create(bootstrap: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("orders", 1, 1, config=configs)]).values():
        made.result(30)


@pytest.fixture(scope="module")
def exported(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of several segments, and the groups' topic."""
    scratch = tmp_path_factory.mktemp("export")
    settings = {"offsets.topic.num.partitions": "1"}
    with RunningNode(scratch / "data", settings=settings) as node:
        create(node.bootstrap, **{"segment.bytes": str(SEGMENT_BYTES)})
        produce(node.bootstrap, 0, RECORDS)
        (scratch / "expected").write_text(repr(consume(node.bootstrap)))
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 42)], asynchronous=False)
        consumer.close()
        assert node.stop() == 0
    run_quipu("log", "export", str(scratch / "data"), "--to", str(scratch / "out"))
    return scratch / "out"


def dump(jars: Path, *words: str) -> str:
    done = KafkaTools(jars, "").program("kafka-dump-log", *words)
    assert done.code == 0, done.out + done.err
    return done.out + done.err


@pytest.mark.timeout(300)
def test_kafka_dump_log_accepts_every_file(kafka_jars: Path, exported: Path) -> None:
    """K1, T5: records, batches and both indexes, of every segment."""
    partition = exported / "orders-0"
    logs = sorted(partition.glob("*.log"))
    assert len(logs) > 3
    everything = ",".join(str(path) for path in sorted(partition.glob("*.log")))
    shown = dump(kafka_jars, "--files", everything, "--print-data-log", "--deep-iteration")
    assert "isvalid: false" not in shown
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+) ", shown, re.MULTILINE)]
    assert offsets == list(range(RECORDS))
    assert set(re.findall(r"compresscodec: (\w+)", shown)) == set(CODECS)
    indexes = sorted(map(str, [*partition.glob("*.index"), *partition.glob("*.timeindex")]))
    assert any(Path(path).stat().st_size > 0 for path in indexes)
    for option in ("--verify-index-only", "--index-sanity-check"):
        shown = dump(kafka_jars, "--files", ",".join(indexes), option)
        assert not re.search("mismatch|Mismatch|corrupt|Found timestamp|out of order", shown), shown
        if option == "--index-sanity-check":
            assert shown.count("passed sanity check.") == len(indexes)
    entries = dump(kafka_jars, "--files", ",".join(indexes))
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.MULTILINE)) > 20


@pytest.mark.timeout(120)
def test_kafka_dump_log_decodes_the_groups(kafka_jars: Path, exported: Path) -> None:
    """K3: with --offsets-decoder, as those of Kafka."""
    (log,) = (exported / "__consumer_offsets-0").glob("*.log")
    shown = dump(kafka_jars, "--files", str(log), "--offsets-decoder", "--print-data-log")
    (payload,) = re.findall(r'payload: (\{.*"offset":42.*\})', shown)
    assert json.loads(payload)["data"]["offset"] == 42
    assert re.search(r'"group":"g","topic":"orders","partition":0', shown)


@pytest.mark.timeout(300)
def test_a_real_kafka_goes_on_with_an_exported_partition(
    kafka_jars: Path, exported: Path, tmp_path: Path
) -> None:
    """K1: the way out: the files take the place of those of an empty partition of Kafka; it serves
    every record under its offset and timestamp, and appends to them.
    """
    data = exported.parent / "data"
    run_quipu("log", "export", str(data / "orders-0"), "--to", str(tmp_path / "out"),
              "--leader-epoch", "0")
    with KafkaCluster(kafka_jars, tmp_path / "kafka") as kafka:
        create(kafka.bootstrap)
        partition = kafka.log_dir() / "orders-0"
        wait_for((partition / "partition.metadata").exists)
        kafka.kill(1)
        for path in partition.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (tmp_path / "out" / "orders-0").iterdir():
            shutil.copy(path, partition)
        kafka.start(1)
        assert repr(consume(kafka.bootstrap)) == (exported.parent / "expected").read_text()
        produce(kafka.bootstrap, RECORDS, 100)
        assert [each[0] for each in consume(kafka.bootstrap)] == list(range(RECORDS + 100))
        kafka.kill(1)
        kafka.start(1)
        assert len(consume(kafka.bootstrap)) == RECORDS + 100
