"""Chains whose old records are in a tier that all nodes share, while heads come and go."""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from quipu.remote.metadata.errors import FencedLeader
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.storage.postgres import PostgresBackend
from quipu.remote.segments.names import SegmentName, find_name
from quipu.runtime.objects.urls import open_store
from quipu.runtime.rng import SystemRng
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from quipu.wire.record_batch import decode_records, parse_header
from tests.harness.cluster import RunningCluster
from tests.harness.raw import RawConnection
from tests.kill.load import PARTITIONS, Load, read_all
from tests.remote.metadata.world import manager_of

pytestmark = pytest.mark.xdist_group("tiered chain")

ROUNDS = int(os.environ.get("TIER_KILLS", "1"))
SEED = int(os.environ.get("KILL_SEED", "20"))
PAUSED_SECONDS = 2.5  # longer than a session
SETTINGS = {
    "remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "100", "remote.log.manager.task.retry.backoff.ms": "50",
    "remote.log.orphan.grace.ms": "4000"}
TIERED = {"remote_storage_enable": "true", "segment_bytes": "65536",
          "local_retention_bytes": "65536", "min_insync_replicas": "1"}


def first_records(cluster: RunningCluster, name: str, count: int) -> list[tuple[int, bytes]]:
    """The first records of partition 0, as one node sends them, whatever its role."""
    found: list[tuple[int, bytes]] = []
    for _ in cluster.until(f"{name} sends the first records"):
        part = FetchPartition(partition=0, fetch_offset=len(found), partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                               topics=[FetchTopic(topic="t", partitions=[part])])
        with RawConnection("127.0.0.1", cluster[name].port) as raw:
            answer = raw.ask(request, 10)
        assert isinstance(answer, FetchResponse)
        (part_answer,) = answer.responses[0].partitions
        data = memoryview(bytes(part_answer.records or b""))
        while data:
            size = parse_header(data).size
            found += [(record.offset, record.value or b"") for record
                      in decode_records(data[:size], size_max=1 << 20)]
            data = data[size:]
        if len(found) >= count:
            return found[:count]
    raise AssertionError


def first_segment(cluster: RunningCluster, name: str) -> int:
    """Where the first local segment of partition 0 begins, counting internal records."""
    return min(int(path.stem) for folder in (cluster.directory / name).glob("t-0.*")
               for path in folder.glob("*.log"))


def object_names(url: str) -> list[SegmentName]:
    async def names() -> list[SegmentName]:
        store = open_store(url, lambda: 0)
        page = await store.list()
        await store.close()
        assert page.after is None
        return [name for info in page.objects if (name := find_name(info.key)) is not None]

    return asyncio.run(names())


def topic_id(cluster: RunningCluster) -> UUID:
    (folder,) = (cluster.directory / "a-0").glob("t-0.*")
    return UUID(folder.name.rpartition(".")[2])


def survive(path: Path, url: str, check: Callable[[RunningCluster], None], **more: str) -> None:
    settings = {**SETTINGS, "remote.log.storage.url": url,
                **{name.replace("_", "."): value for name, value in more.items()}}
    with RunningCluster(path, settings=settings) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, **TIERED)
        load = Load(cluster.bootstrap, "t", random.Random(SEED))
        load.run(1.0)
        for _ in range(ROUNDS):
            head = next(iter(cluster.states("a")))
            cluster[head].kill()  # while it copies
            load.run(1.0)
            cluster.await_serving("a", 2)
            load.run(1.0)
            cluster[head].start()
            cluster.await_serving("a")
            head = next(iter(cluster.states("a")))
            cluster[head].pause()  # it is deposed without knowing it, in the middle of a copy
            load.run(PAUSED_SECONDS)
            cluster[head].resume()
            cluster.await_serving("a")
        load.run(0.5)
        load.finish()
        for _ in cluster.until("most of it is only in the tier"):
            if all(first_segment(cluster, name) > 1000 for name in cluster.chains["a"]):
                break
        assert load.anomalies(read_all(cluster.bootstrap, "t")) == []

        tail = list(cluster.states("a"))[-1]
        cluster[tail].restart()  # nothing is cached
        cluster.await_serving("a")
        expected = first_records(cluster, tail, 100)
        assert [offset for offset, _ in expected] == list(range(100))

        cluster.add("a-3").start()
        cluster.quipu("chain", "extend", "a", "a-3")
        cluster.chains["a"].append("a-3")
        cluster.await_serving("a")
        assert first_segment(cluster, "a-3") > 1000
        assert first_records(cluster, "a-3", 100) == expected
        assert load.anomalies(read_all(cluster.bootstrap, "t")) == []

        for _ in cluster.until("of every segment there is one object"):
            names = object_names(url)
            if len({(name.partition, name.start_offset) for name in names}) == len(names):
                break
        check(cluster)


@pytest.mark.timeout(120 + 40 * ROUNDS)
def test_a_tier_in_a_folder_outlives_its_heads(tmp_path: Path) -> None:
    """R11, R12, R13: heads are killed and paused while they copy; the next head goes on.  Records
    are read from the tier by consumers at the tail, whose node only follows the metadata, which is
    in a topic; a new member starts where the tier ends.
    """
    survive(tmp_path, (tmp_path / "tier").as_uri(), lambda _: None)


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_a_tier_in_s3_outlives_its_heads(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """R11, R12, R13: the same with objects in S3 and metadata in PostgreSQL; a write of an earlier
    leader is refused there.
    """
    server = request.getfixturevalue("s3_server")
    database = request.getfixturevalue("postgres_server").url

    def fenced(cluster: RunningCluster) -> None:
        partition = TopicIdPartition(topic_id(cluster), 0, "t")

        async def claim() -> None:
            manager = await manager_of(PostgresBackend(database, SystemRng()), 1)
            await manager.on_partition_leadership_changes({partition: 0}, [])
            with pytest.raises(FencedLeader, match="nothing was written"):
                await manager.list_remote_log_segments(partition)
            await manager.close()

        asyncio.run(claim())

    survive(tmp_path, server.url(server.bucket()), fenced,
            rlmm_config_metadata_storage_url=database)
