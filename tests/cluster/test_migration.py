"""A topic on a chain becomes diskless while stock clients use it, with real processes."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quipu.model.migration import MigrationAction
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quipu.wire.record_batch import parse_header
from tests.harness.command import run_quipu
from tests.harness.diskless_site import DisklessSite
from tests.harness.progress import wait_for
from tests.harness.raw import RawConnection
from tests.harness.s3_server import S3Server
from tests.soak.migration import TIERED, Migration, migrate_once

SECONDS_MAX = 60.0
SEED = 30


@pytest.fixture(scope="module")
def site(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DisklessSite]:
    with DisklessSite(tmp_path_factory.mktemp("migrated"), s3_server, is_tiered=True) as running:
        yield running


def write(site: DisklessSite, topic: str, first: int, count: int) -> None:
    """Records whose timestamps are their numbers, in order."""
    producer = Producer({"bootstrap.servers": site.bootstrap, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_000 + number)
    assert producer.flush(SECONDS_MAX) == 0


def read(site: DisklessSite, topic: str, offset: int, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "unused",
                         "auto.offset.reset": "error", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[tuple[int, bytes]] = []

    def more() -> bool:
        for message in consumer.consume(count - len(found), timeout=0.5):
            assert message.error() is None, message.error()
            found.append((message.offset() or 0, message.value() or b""))
        return len(found) >= count

    wait_for(more, progress=lambda: len(found))
    consumer.close()
    return found


def epochs(site: DisklessSite, name: str, topic: str, count: int) -> list[int]:
    """The leader epoch of the batch that holds each offset, as one node sends it."""
    found: dict[int, int] = {}
    with RawConnection("127.0.0.1", site.cluster[name].port) as raw:
        while len(found) < count:
            answer: Any = raw.ask(FetchRequest(
                replica_id=-1, max_wait=500, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(
                    topic=topic, partitions=[FetchPartition(
                        partition=0, fetch_offset=len(found), current_leader_epoch=-1,
                        partition_max_bytes=1 << 20)])]), 11)
            data = memoryview(answer.responses[0].partitions[0].records or b"")
            while data:
                header = parse_header(data)
                for offset in range(header.base_offset, header.last_offset + 1):
                    found[offset] = header.leader_epoch
                data = data[header.size:]
    return [found[offset] for offset in range(count)]


def epoch_end(site: DisklessSite, name: str, topic: str, epoch: int) -> tuple[int, int]:
    with RawConnection("127.0.0.1", site.cluster[name].port) as raw:
        answer: Any = raw.ask(OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[
                OffsetForLeaderPartition(partition=0, current_leader_epoch=-1,
                                         leader_epoch=epoch)])]), 3)
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.leader_epoch, found.end_offset


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_twice_while_processes_are_killed(site: DisklessSite) -> None:
    """D30, D32: with the controller and a broker killed in the middle: offsets go on, every
    acknowledged record is there once and in order, and a consumer that follows misses nothing.
    """
    assert migrate_once(site, "killed", random.Random(SEED)) == []


def test_old_records_come_from_the_tier_and_new_ones_from_objects(site: DisklessSite) -> None:
    """D30: one offset space for fetches, timestamps and epochs, on every node; no log is left on
    a disk, and what moves to the tier later has the epoch of its objects.
    """
    site.cluster.await_serving("a")
    site.cluster.create_topic("hybrid", retention_ms="-1", **TIERED)
    write(site, "hybrid", 0, 50)
    done = run_quipu("topic", "migrate", "hybrid", "--to", "diskless", "--json",
                     "--bootstrap", site.bootstrap)
    assert done.code == 0, done.err
    last = json.loads(done.out.splitlines()[-1])
    assert last == {"topic": "hybrid", "partitions": [
        {"partition": 0, "step": "done", "bytes_left": 0, "trouble": None}]}
    write(site, "hybrid", 50, 50)

    assert read(site, "hybrid", 0, 100) == [(number, b"%d" % number) for number in range(100)]
    described = json.loads(site.cluster.quipu("topic", "describe", "hybrid", "--json"))
    (partition,) = described["partitions"]
    assert (described["diskless"], partition["start"], partition["end"], partition["tiered"]) == (
        True, 0, 100, 50)
    for name in site.cluster.nodes:
        seen = epochs(site, name, "hybrid", 100)
        old, new = seen[0], seen[-1]
        assert seen == [old] * 50 + [new] * 50
        assert new > old > 0
        assert epoch_end(site, name, "hybrid", old) == (old, 50)
        assert epoch_end(site, name, "hybrid", new) == (new, 100)
        assert list((site.cluster.directory / name).glob("hybrid-*")) == []
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "unused"})
    for number in (7, 49, 50, 77):
        (found,) = consumer.offsets_for_times(
            [TopicPartition("hybrid", 0, 1_000 + number)], timeout=SECONDS_MAX)
        assert found.offset == number
    consumer.close()

    site.cluster.quipu(
        "topic", "alter", "hybrid", "-c", "local.retention.ms=1", "-c", "segment.ms=100")
    wait_for(lambda: json.loads(site.cluster.quipu("topic", "describe", "hybrid", "--json"))[
        "partitions"][0]["tiered"] == 100, what=site.cluster.logs)
    assert epochs(site, "a-1", "hybrid", 100) == [old] * 50 + [new] * 50


def test_a_migration_that_is_called_off_leaves_a_topic_as_it_was(site: DisklessSite) -> None:
    """D32: reversible until the switch; and it can begin again, with what was written since."""
    site.cluster.await_serving("a")
    site.cluster.create_topic("undone", retention_ms="-1", **TIERED)
    write(site, "undone", 0, 20)
    migration = Migration(site, "undone", random.Random(1), is_held=True)
    try:
        migration.begin()
        wait_for(lambda: "copying" in migration.steps(), pause=0.01)
        cancelled = run_quipu("topic", "migrate", "undone", "--cancel",
                              "--bootstrap", site.bootstrap)
        assert cancelled.code == 0, cancelled.err
    finally:
        site.proxy.heal()
    assert migration.steps() == {"not begun": 1}
    write(site, "undone", 20, 20)
    assert read(site, "undone", 0, 40) == [(number, b"%d" % number) for number in range(40)]

    migration.begin()
    site.proxy.heal()
    wait_for(lambda: migration.steps() == {"done": 1}, what=site.cluster.logs)
    write(site, "undone", 40, 20)
    assert read(site, "undone", 0, 60) == [(number, b"%d" % number) for number in range(60)]
    again = run_quipu("topic", "migrate", "undone", "--cancel", "--bootstrap", site.bootstrap)
    assert (again.code, "is diskless, and stays it" in again.err) == (1, True)


def test_what_cannot_be_migrated_is_told(site: DisklessSite) -> None:
    """D30: on the command line, with what to do; diskless.enable itself cannot be altered."""
    site.cluster.create_topic("plain")
    refused = run_quipu("topic", "migrate", "plain", "--bootstrap", site.bootstrap)
    assert (refused.code, "set remote.storage.enable=true" in refused.err) == (1, True)
    altered = run_quipu("topic", "alter", "plain", "-c", "diskless.enable=true",
                        "--bootstrap", site.bootstrap)
    assert (altered.code, "quipu topic migrate" in altered.err) == (1, True)
    site.create_topic("born")
    assert Migration(site, "born", random.Random(1)).ask(MigrationAction.BEGIN)[0].is_done
