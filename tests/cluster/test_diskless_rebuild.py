"""The control plane of a cluster is lost, and rebuilt from the objects with the real command."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.harness.diskless_site import DisklessSite
from tests.harness.history import Anomaly, Read, check
from tests.harness.progress import wait_for
from tests.harness.s3_server import S3Server
from tests.harness.writers import Writer, anomalies, await_progress, read_topic, running

TOPICS = {"one": 1, "several": 4}  # and how many partitions they have
LOAD_SECONDS = 1.0
LEAVE_MS = "1000"  # that the last node to stop waits for a controller that is gone


@pytest.fixture(scope="module")
def site(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DisklessSite]:
    settings = {"controlled.shutdown.timeout.ms": LEAVE_MS}
    with DisklessSite(tmp_path_factory.mktemp("rebuilt"), s3_server, settings) as running:
        yield running


def drop_all(site: DisklessSite) -> None:
    """Nothing is left in the database."""
    with psycopg.connect(site.postgres.url, autocommit=True) as connection:
        tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'diskless_%'"
        (count,) = connection.execute(tables).fetchone() or (0,)
        assert count > 0
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        assert connection.execute(tables).fetchone() == (0,)


def rebuild(site: DisklessSite) -> str:
    drop_all(site)
    code, out = site.diskless("rebuild")
    assert code == 0, out
    return out


def writers_of(site: DisklessSite, prefix: str) -> list[Writer]:
    """Three of one partition, each tied to a node, and one of several; their topics are new."""
    for name, partitions in TOPICS.items():
        site.create_topic(prefix + name, partitions=partitions)
    pinned = [Writer(f"at {name}", site.pinned(name), f"{prefix}one", [0], random.Random(place))
              for place, name in enumerate(site.cluster.nodes)]
    return [*pinned, Writer("several", site.bootstrap, f"{prefix}several", range(4),
                            random.Random(9))]


def read_by_group(site: DisklessSite, topic: str, count: int) -> list[Read]:
    """Some records of partition 0 that the group has not seen, which are then committed."""
    found: list[Read] = []
    with closing(Consumer({"bootstrap.servers": site.bootstrap, "group.id": f"readers of {topic}",
                           "auto.offset.reset": "earliest", "enable.auto.commit": False,
                           "session.timeout.ms": 6000})) as consumer:
        consumer.subscribe([topic])

        def more() -> bool:
            for message in consumer.consume(count - len(found), timeout=0.5):
                assert message.error() is None, message.error()
                found.append(Read(message.partition() or 0, message.offset() or 0,
                                  (message.value() or b"").decode()))
            return len(found) >= count

        wait_for(more, progress=lambda: len(found))
        consumer.commit(offsets=[TopicPartition(topic, 0, found[-1].offset + 1)],
                        asynchronous=False)
    return found


@pytest.mark.timeout(600)
def test_a_lost_control_plane_is_rebuilt_under_running_clients(site: DisklessSite) -> None:
    """D37: after a clean stop the same records are at the same offsets; producers that were never
    told of anything go on with their sequences, and groups where they were.
    """
    writers = writers_of(site, "stopped-")
    with running(writers, site.cluster.logs):
        await_progress(writers, site.cluster.logs)
        first = read_by_group(site, "stopped-one", 50)
        time.sleep(LOAD_SECONDS)
        site.cluster.stop()
        assert "nothing is missing" in rebuild(site)
        site.cluster.launch(site.cluster.nodes)
        await_progress(writers, site.cluster.logs, 50)
        second = read_by_group(site, "stopped-one", 50)

    assert [read.offset for read in first + second] == list(range(100))
    for name, partitions in TOPICS.items():
        reads = read_topic(site.bootstrap, f"stopped-{name}", partitions)
        readers = [reads, first + second] if name == "one" else [reads]
        assert anomalies(f"stopped-{name}", writers, readers) == []


def without_offsets(writers: Sequence[Writer], topic: str, reads: list[Read]) -> list[Anomaly]:
    """What a history breaks if acknowledged records may have moved."""
    sent = [each._replace(offset=None) for writer in writers if writer.topic == topic
            for each in writer.sent()]
    return check(sent, [reads])


@pytest.mark.timeout(600)
def test_a_control_plane_that_is_lost_with_its_nodes_loses_no_record(site: DisklessSite) -> None:
    """D37, D33: all nodes are killed in the middle of their work, and the database is gone.  The
    last batches have no receipts, so they may be at other offsets; none is lost or written twice.
    """
    writers = writers_of(site, "killed-")
    with running(writers, site.cluster.logs):
        await_progress(writers, site.cluster.logs)
        time.sleep(LOAD_SECONDS)
        site.cluster.kill()
        rebuild(site)
        site.cluster.launch(site.cluster.nodes)
        await_progress(writers, site.cluster.logs, 50)

    for name, partitions in TOPICS.items():
        reads = read_topic(site.bootstrap, f"killed-{name}", partitions)
        assert without_offsets(writers, f"killed-{name}", reads) == []
