"""`kill -9` while segments are copied to a tier and deleted there: nothing is lost or left over.

TIER_KILLS and KILL_SEED let `make soak` run longer and elsewhere.
"""

import asyncio
import os
import random
import sqlite3
import time
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from quipu.remote.metadata.changes import MetadataStorage
from quipu.remote.metadata.following import FollowerPartition
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.serde import KafkaSerde
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.metadata.storage.keys import PathKeyFactory
from quipu.remote.metadata.storage.sqlite import SqliteBackend
from quipu.remote.segments.names import SegmentName, find_name
from tests.e2e.aiokafka_client import AiokafkaClient
from tests.e2e.confluent_client import ConfluentClient
from tests.e2e.kafka_python_client import KafkaPythonClient
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.kill.load import Load, create_topic, read_all

KILLS = int(os.environ.get("TIER_KILLS", "4"))
SEED = int(os.environ.get("KILL_SEED", "20"))
SECONDS = (0.1, 0.5)  # between a start and the kill
LOCAL_BYTES = 16384
SEGMENT_BYTES = 65536
TIMES_LARGER = 20
SETTINGS = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "20",
    "log.retention.check.interval.ms": "100", "remote.log.manager.task.retry.backoff.ms": "20",
    "remote.log.orphan.grace.ms": "1000"}
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES),
          "local.retention.bytes": str(LOCAL_BYTES)}
SHORT = {**TIERED, "retention.bytes": "150000"}  # so that segments are deleted all the time


def local_bytes(node: RunningNode, topic: str) -> dict[str, int]:
    """The bytes of segments on the node's disk, by partition."""
    found: dict[str, int] = {}
    for folder in node.directory.glob(f"{topic}-*"):
        sizes = []
        for path in folder.rglob("*.log"):
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:  # deleted meanwhile
                continue
        found[folder.name] = sum(sizes)
    return found


def object_names(node: RunningNode) -> list[SegmentName]:
    """The objects of the tier."""
    root = node.directory / "remote"
    keys = [str(path.relative_to(root)).replace("~/", "/") for path in root.rglob("*.log")]
    return [name for key in keys if (name := find_name(key)) is not None]


def metadata_of(node: RunningNode, topic_id: UUID, partition: int) -> dict[UUID, object]:
    """The states of all segments of a partition, by id, as any follower finds them."""

    async def read() -> dict[UUID, object]:
        backend = SqliteBackend(str(node.directory / "remote-metadata.sqlite"))
        try:
            follower = FollowerPartition(
                MetadataStorage(backend, PathKeyFactory(), KafkaSerde()),
                TopicIdPartition(topic_id, partition, "any"))
            return {each.segment_id.id: each.state for each in await follower.segments()}
        finally:
            await backend.close()

    return asyncio.run(read())


def leftovers(node: RunningNode) -> str:
    """What objects and metadata do not agree about; empty if they do."""
    names = object_names(node)
    for topic_id, partition in {(name.topic_id, name.partition) for name in names}:
        stored = {name.segment_id for name in names
                  if (name.topic_id, name.partition) == (topic_id, partition)}
        try:
            known = metadata_of(node, topic_id, partition)
        except sqlite3.Error as error:
            return str(error)
        if stored != known.keys() or set(known.values()) != {COPY_FINISHED}:
            return f"{topic_id}-{partition}: {sorted(stored)} are stored, known are {known}"
    return ""


def times_of(bootstrap: str, topic: str) -> list[int]:
    """The timestamps of all records of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused",
                         "enable.auto.commit": False})
    place = TopicPartition(topic, 0, OFFSET_BEGINNING)
    _, end = consumer.get_watermark_offsets(place, timeout=10)
    consumer.assign([place])
    found: list[int] = []
    while len(found) < end:
        found += [message.timestamp()[1] for message in consumer.consume(1000, timeout=1.0)]
    consumer.close()
    return found


@pytest.mark.timeout(100 + 10 * KILLS)
def test_a_tier_survives_kill_9(tmp_path: Path) -> None:
    """R13, R15: a topic 20 times as large as its local retention, and one whose old segments are
    deleted all the time, on a node that is killed again and again.  Then every record is read
    from the beginning, by three stock clients, and found by its time; no object is left over.
    """
    rng = random.Random(SEED)
    with RunningNode(tmp_path / "data", settings=SETTINGS) as node:
        create_topic(node.bootstrap, "load", TIERED)
        create_topic(node.bootstrap, "short", SHORT)
        load = Load(node.bootstrap, "load", rng)
        short = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 0,
                          "log_level": 0, "reconnect.backoff.ms": 10,
                          "reconnect.backoff.max.ms": 50})

        def feed(seconds: float) -> None:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                for _ in range(20):
                    load.step()
                if len(short) < 100:
                    short.produce("short", value=bytes(1000), partition=0)
                short.poll(0)

        for _ in range(KILLS):
            feed(rng.uniform(*SECONDS))
            node.kill()
            node.start()
        size_min = 2 * TIMES_LARGER * LOCAL_BYTES
        while load.acknowledged * 100 < size_min:
            feed(0.2)
        load.finish()
        assert short.flush(30) == 0
        wait_for(lambda: max(local_bytes(node, "load").values()) <= LOCAL_BYTES + SEGMENT_BYTES,
                 what=lambda: str(local_bytes(node, "load")))
        wait_for(lambda: not leftovers(node),
                 what=lambda: leftovers(node) + node.log_text()[-3000:])

        total = sum(path.stat().st_size for path in (node.directory / "remote").rglob("*.log"))
        assert total > size_min
        reads = read_all(node.bootstrap, "load")
        assert load.anomalies(reads) == []
        values = sorted(read.value for read in reads)
        times = times_of(node.bootstrap, "load")
        for client in (ConfluentClient(node.bootstrap), KafkaPythonClient(node.bootstrap),
                       AiokafkaClient(node.bootstrap)):
            got = client.consume("load", len(values))
            assert sorted(message.value for message in got) == values
            for place in (0, len(times) // 3, len(times) // 2, len(times) - 1):
                first = next(offset for offset, at in enumerate(times) if at >= times[place])
                assert client.offset_for_time("load", times[place]) == first
        node.restart()
        assert load.anomalies(read_all(node.bootstrap, "load")) == []
