"""Records of a diskless topic are read from objects and from the tier, and each of them once."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from quipu.client.ranges import Range
from quipu.diskless.control_plane.interface import FindRequest
from quipu.diskless.values import LogKey
from quipu.model.ids import Offset
from quipu.pipeline.reading import direct
from quipu.pipeline.reading.direct import DirectReadFailed
from quipu.pipeline.source import DirectRead
from tests.broker.diskless.parts import (
    create,
    diskless_node,
    list_offset,
    partition,
    put,
    until_true,
)
from tests.contract.control_plane.planes import postgres_url
from tests.harness.here import NodeHere, Peer
from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import S3Server
from tests.looped import looped
from tests.pipeline.reading.test_direct import Found, fetched, fresh_memory, read

__all__ = ["fetched", "fresh_memory"]  # fixtures

BATCHES = 40
RECORDS = 25  # of a batch
COUNT = BATCHES * RECORDS
VALUE_SIZE = 200
AGE_MS = 400
TIERED = {"remote_storage_enable": "true", "local_retention_ms": str(AGE_MS),
          "segment_bytes": str(32 << 10), "segment_ms": "100"}


def tiered_node(path: Path, **overrides: str) -> NodeHere:
    """A node that moves old records of diskless topics to a tier, again and again."""
    return diskless_node(path, **{
        "remote_log_storage_system_enable": "true", "remote_log_manager_task_interval_ms": "100",
        **overrides})


async def fill(peer: Peer, first: int = 0, batches: int = BATCHES) -> None:
    for number in range(first, first + batches):
        response = await put(peer, "t", *(value(number * RECORDS + i) for i in range(RECORDS)))
        assert (response.error_code, response.base_offset) == (0, number * RECORDS)


def value(number: int) -> bytes:
    return b"%d " % number + b"x" * VALUE_SIZE


def expected(first: int = 0, end: int = COUNT) -> Found:
    return [(number, value(number)) for number in range(first, end)]


async def tiered(node: NodeHere, peer: Peer) -> int:
    """Records of which the older half is moved to the tier; returns where it ends there."""
    await create(node, **TIERED)
    await fill(peer, 0, BATCHES // 2)
    found = partition(node)
    assert found is not None

    async def is_moved() -> bool:
        await found.refresh()
        return found.local_start_offset == COUNT // 2

    await until_true(is_moved)
    assert node.node.diskless is not None
    settings = found.settings
    assert settings.remote_storage_enable
    await fill(peer, BATCHES // 2, BATCHES // 2)
    await found.refresh()
    return found.local_start_offset


@looped
async def test_a_diskless_topic_is_read_without_a_broker(
    tmp_path: Path, fetched: list[Range]
) -> None:
    """I17: every record, row for row what brokers give, and no broker is asked for one."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        await fill(peer)
        through_brokers = await read(node, 0, COUNT, DirectRead.NEVER)
        fetched.clear()

        assert await read(node, 0, COUNT) == through_brokers == expected()
        for first, end in ((0, 1), (3, 4), (RECORDS - 1, RECORDS + 1), (7, COUNT - 3)):
            assert await read(node, first, end) == expected(first, end)
        assert fetched == []


@looped
async def test_a_small_end_is_read_from_brokers(tmp_path: Path, fetched: list[Range]) -> None:
    """I17: what brokers hold in memory is not worth requests to the store, unless it is much."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        await fill(peer)
        assert await read(node, 0, COUNT, DirectRead.AUTO) == expected()
        assert [(each.first, each.end) for each in fetched] == [(0, COUNT)]


@looped
async def test_much_is_read_from_objects(
    tmp_path: Path, fetched: list[Range], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17: with directRead=auto, which is the default, in several reads and pages."""
    monkeypatch.setattr(direct, "RUNS_SIZE_MIN", 1000)
    monkeypatch.setattr("quipu.pipeline.reading.object_runs.READ_SIZE", 20_000)
    monkeypatch.setattr("quipu.client.diskless_log.RUNS_MAX", 7)
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        await fill(peer)
        assert await read(node, 0, COUNT, DirectRead.AUTO) == expected()
        assert sum(each.size for each in fetched) < 3 * RECORDS


@looped
async def test_both_tiers_follow_each_other(tmp_path: Path, fetched: list[Range]) -> None:
    """I17, D8: old records from segments, newer ones from objects, each once; the broker agrees."""
    async with tiered_node(tmp_path) as node, node.connect() as peer:
        boundary = await tiered(node, peer)
        assert await read(node, 0, COUNT, DirectRead.NEVER) == expected()
        fetched.clear()

        assert await read(node, 0, COUNT) == expected()
        for first, end in ((boundary - 1, boundary + 1), (boundary, COUNT), (0, boundary),
                           (5, COUNT - 5)):
            assert await read(node, first, end) == expected(first, end)
        assert fetched == []


@looped
async def test_a_log_start_within_a_segment(tmp_path: Path, fetched: list[Range]) -> None:
    """I17, D7: DeleteRecords reaches into a segment; what is left of it is found, also by time."""
    async with tiered_node(tmp_path) as node, node.connect() as peer:
        await tiered(node, peer)
        found = partition(node)
        assert found is not None
        await found.services.plane.delete_records(found.key, Offset(7), 0)
        await found.refresh()
        assert found.log_start_offset == 7

        assert await read(node, 7, COUNT) == expected(7)
        assert fetched == []
        assert (await list_offset(peer, "t", 1)).offset == 7


@looped
async def test_reading_while_records_move(tmp_path: Path) -> None:
    """I17: pipeline.J1, pipeline.J2: again and again, while the boundary moves under the reader."""
    async with tiered_node(tmp_path) as node, node.connect() as peer:
        await create(node, **TIERED)
        for number in range(BATCHES):
            await fill(peer, number, 1)
            end = (number + 1) * RECORDS
            assert await read(node, 0, end) == expected(0, end)
        found = partition(node)
        assert found is not None
        assert found.local_start_offset > 0


@looped
async def test_an_object_that_is_gone(tmp_path: Path, fetched: list[Range]) -> None:
    """I17: pipeline.J3: brokers are asked then, or it is an error."""
    async with diskless_node(tmp_path, diskless_cache_bytes=str(1 << 30)) as node:
        async with node.connect() as peer:
            topic_id = await create(node)
            await fill(peer)
        diskless = node.node.diskless
        assert diskless is not None
        (answer,) = await diskless.plane.find([
            FindRequest(LogKey(UUID(bytes=topic_id), 0), Offset(0), 1 << 30)])
        await diskless.store.delete([answer.runs[5].key])

        with pytest.raises(DirectReadFailed):
            await read(node, 0, COUNT)


@looped
async def test_s3_and_postgresql(
    tmp_path: Path, s3_server: S3Server, postgres_server: PostgresServer, fetched: list[Range]
) -> None:
    """I17, D8, D38: objects, segments, control plane and metadata as real servers have them."""
    async with tiered_node(
            tmp_path, diskless_storage_url=s3_server.url(s3_server.bucket()),
            remote_log_storage_url=s3_server.url(s3_server.bucket()),
            diskless_control_plane_url=(plane := postgres_url(postgres_server)),
            rlmm_config_metadata_storage_url=plane) as node:
        async with node.connect() as peer:
            await tiered(node, peer)
            assert await read(node, 0, COUNT, DirectRead.NEVER) == expected()
            fetched.clear()
            assert await read(node, 0, COUNT) == expected()
            assert fetched == []
        await asyncio.sleep(0)
