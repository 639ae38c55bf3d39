"""`quipu dev --diskless`: a store and PostgreSQL for all nodes, with one command."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quipu.cli import dev_layout
from tests.cli.dev_run import Dev, lives, running
from tests.harness.command import run_quipu

pytestmark = pytest.mark.xdist_group("cluster")
CONSUME_SECONDS = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose parents everybody can pass: as root, PostgreSQL runs as `nobody`."""
    with tempfile.TemporaryDirectory(prefix="quipu-dev-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name) / "dev"


def postgres_pid(folder: Path) -> int:
    """The process of the server, as PostgreSQL notes it in its own folder."""
    path = folder / dev_layout.CONTROL_PLANE_NAME / "data" / "postmaster.pid"
    return int(path.read_text().splitlines()[0])


def produce(dev: Dev, values: range) -> None:
    producer = Producer({"bootstrap.servers": dev.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce("events", str(value).encode(), partition=value % 3)
    assert producer.flush(CONSUME_SECONDS) == 0


def consumed(dev: Dev, count: int) -> set[int]:
    """The values of the first records of all partitions; fails if there are fewer."""
    consumer = Consumer({"bootstrap.servers": dev.bootstrap, "group.id": "g"})
    try:
        consumer.assign([TopicPartition("events", each, 0) for each in range(3)])
        found = consumer.consume(count, CONSUME_SECONDS)
        assert [each.error() for each in found] == [None] * count
        return {int(each.value() or b"") for each in found}
    finally:
        consumer.close()


def test_diskless_topics_on_three_racks_with_one_command(folder: Path) -> None:
    """D1, D2: stock clients use a diskless topic; its records are there after the next start, and
    PostgreSQL ends with the cluster; its loss before that is told.
    """
    with running(folder, "--racks", "r1,r2,r3", "--diskless", "--base-port", "0", nodes=3) as dev:
        assert [dev.rows[f"a-{each}"]["rack"] for each in range(3)] == ["r1", "r2", "r3"]
        dev.quipu("topic", "create", "events", "--partitions", "3", "-c", "diskless.enable=true")
        assert "quipu topic create events" in dev.err
        produce(dev, range(30))
        assert consumed(dev, 30) == set(range(30))
        assert any((folder / dev_layout.DISKLESS_NAME).rglob("objects~/*/*-*"))
        first = postgres_pid(folder)
        assert lives(first)
        assert dev.end(signal.SIGINT) == 0
        assert not lives(first)
    with running(folder, nodes=3) as dev:
        produce(dev, range(30, 40))
        assert consumed(dev, 40) == set(range(40))
        second = postgres_pid(folder)
        os.kill(second, signal.SIGQUIT)
        dev.await_err(r"PostgreSQL \(process \d+\) ended with exit code \d+: diskless topics wait")
        assert dev.end(signal.SIGTERM) == 0


def test_a_node_that_cannot_start_ends_postgresql_too(folder: Path) -> None:
    """K9: with the node's last words; nothing is left running."""
    done = run_quipu("dev", "--dir", str(folder), "--nodes", "1", "--base-port", "0", "--diskless",
                     "--set", "broker.session.timeout.ms=10")
    assert done.code == 1
    assert re.search(r"a-0 \(process \d+\) ended with exit code 1", done.err)
    assert (folder / dev_layout.CONTROL_PLANE_NAME / "data").is_dir()
    assert not (folder / dev_layout.CONTROL_PLANE_NAME / "data" / "postmaster.pid").exists()
