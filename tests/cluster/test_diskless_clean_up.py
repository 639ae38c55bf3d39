"""What retention, deletions and crashes leave behind is gone from the store in the end."""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from quipu.diskless.objects.names import has_batches
from tests.harness.diskless_site import DisklessSite
from tests.harness.node import RunningNode
from tests.harness.progress import wait_for
from tests.harness.s3_server import S3Server
from tests.harness.writers import read_topic

QUICK = {"diskless.retention.interval.ms": "200", "diskless.cleaner.interval.ms": "200",
         "diskless.object.grace.ms": "1000", "diskless.flush.interval.ms": "20"}
SIZE_MAX = 20_000
VALUE = b"v" * 1000
HOUR = 3600.0
SWEEPING = """\
import sys
from quipu.cli.main import main
from quipu.diskless.cleaning import cleaner
cleaner.SWEEPS_PER_GRACE = 600
sys.exit(main())
"""  # a node that looks for orphans more often than any setting allows


@pytest.fixture(scope="module")
def site(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DisklessSite]:
    with DisklessSite(tmp_path_factory.mktemp("cleaned"), s3_server, QUICK) as running:
        yield running


def put(bootstrap: str, topic: str, count: int) -> None:
    """Write some records, each of them in a batch of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1, "linger.ms": 0})
    errors: list[object] = []
    for _ in range(count):
        producer.produce(topic, VALUE, partition=0, on_delivery=lambda error, _: errors.append(
            error))
        producer.poll(0.01)
    wait_for(lambda: producer.flush(0.5) == 0, progress=lambda: len(producer))
    assert errors == [None] * count


def bounds(bootstrap: str, topic: str) -> tuple[int, int]:
    """The first and the last offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        assert found is not None
        return found
    finally:
        consumer.close()


def states(site: DisklessSite) -> Counter[str]:
    """How many objects are in which state."""
    return Counter(each["state"] for each in site.objects())


def test_records_beyond_retention_and_deleted_topics_leave_the_store(site: DisklessSite) -> None:
    """D1, D7: by time, by size, and with their topic; what others have in the store stays."""
    site.create_topic("kept")
    put(site.bootstrap, "kept", 1)
    wait_for(lambda: states(site)["in use"] == 1, what=lambda: states(site))
    site.create_topic("timed", retention_ms="1000")
    site.create_topic("sized", retention_bytes=str(SIZE_MAX))
    for _ in range(5):
        put(site.bootstrap, "timed", 20)
        put(site.bootstrap, "sized", 20)

    wait_for(lambda: bounds(site.bootstrap, "timed") == (100, 100),
             what=lambda: bounds(site.bootstrap, "timed"))
    wait_for(lambda: bounds(site.bootstrap, "sized")[0] > 0,
             what=lambda: bounds(site.bootstrap, "sized"))
    low, high = bounds(site.bootstrap, "sized")
    assert high == 100
    assert (high - low + 2) * len(VALUE) >= SIZE_MAX, "more than needed is deleted"
    assert len(read_topic(site.bootstrap, "sized", 1)) == high - low
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    for each in admin.delete_topics(["timed", "sized"]).values():
        each.result(30)

    wait_for(lambda: states(site)["in use"] == 1 and states(site)["marked"] == 0,
             progress=lambda: states(site).total(), what=lambda: states(site))
    assert states(site)["missing"] == 0
    assert sum(has_batches(each["key"]) for each in site.objects()) == 1
    assert [read.value for read in read_topic(site.bootstrap, "kept", 1)] == [VALUE.decode()]


def stored(node: RunningNode) -> set[Path]:
    """The objects with batches in a node's own store."""
    folder = node.directory / "diskless" / "objects~"
    return {path for path in folder.rglob("*") if path.is_file()}


def test_what_a_killed_node_never_committed_is_collected(tmp_path: Path) -> None:
    """D7, D33: a node is killed between the upload and the commit; the next one finds the object,
    deletes it when it is old enough, and nothing else.
    """
    node = RunningNode(tmp_path / "data", settings={
        **QUICK, "diskless.storage.system.enable": "true", "diskless.orphan.grace.ms": "180000"})
    node.program = ["-c", SWEEPING]
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        wanted = NewTopic("t", 1, config={"diskless.enable": "true"})
        admin.create_topics([wanted])["t"].result(30)
        put(node.bootstrap, "t", 1)
        before = stored(node)
        with sqlite3.connect(node.directory / "diskless.sqlite", isolation_level=None) as plane:
            plane.execute("BEGIN IMMEDIATE")  # no commit gets through
            producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
            producer.produce("t", b"never acknowledged")
            wait_for(lambda: len(stored(node)) > len(before))
            node.kill()
        producer.purge()
        (orphan,) = stored(node) - before
        node.start()
        put(node.bootstrap, "t", 1)
        time.sleep(1.0)
        assert orphan in stored(node), "it is too young"

        old = time.time() - HOUR
        for path in stored(node):
            os.utime(path, (old, old))
        wait_for(lambda: orphan not in stored(node), what=node.log_text)

        assert stored(node) >= before
        values = [read.value for read in read_topic(node.bootstrap, "t", 1)]
        assert values == [VALUE.decode()] * 2
