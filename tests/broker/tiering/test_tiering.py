"""A node whose old segments go to a tier, and come back from there."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.model.ids import ZERO_UUID, Offset
from quipu.model.partition_log import PartitionLog
from quipu.runtime.disks.disk import DiskError
from quipu.wire.messages.k01_fetch import FetchResponse
from quipu.wire.record_batch import decode_records, parse_header
from tests.broker.serving.test_fetch import fetch
from tests.harness.here import NodeHere, batch_of, produce
from tests.looped import looped

SECONDS_MAX = 30.0
TIERED = {"remote_storage_enable": "true", "segment_bytes": "16384",
          "local_retention_bytes": "16384"}
RECORD_SIZE = 1000
COUNT = 200
INTERVAL = {"remote_log_manager_task_interval_ms": "50", "log_retention_check_interval_ms": "100",
            "remote_log_manager_task_retry_backoff_ms": "20"}


def tiered_node(path: Path, **settings: str) -> NodeHere:
    return NodeHere(path, remote_log_storage_system_enable="true", **INTERVAL, **settings)


def objects(path: Path) -> list[Path]:
    """The objects of the tier."""
    return sorted((path / "data" / "remote").rglob("*.log"))


def log_of(node: NodeHere, topic: str = "t") -> PartitionLog:
    found = node.node.broker.partitions.find(topic, 0)
    assert found is not None
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.02)


def values(numbers: Iterable[int]) -> list[bytes]:
    return [b"%06d" % number + bytes(RECORD_SIZE) for number in numbers]


async def write(node: NodeHere, written: list[bytes], topic: str = "t") -> None:
    async with node.connect() as peer:
        for value in written:
            await peer.ask(produce(topic, batch_of(value)), 9)


async def fetched(node: NodeHere, offset: int, topic: str = "t") -> tuple[int, list[bytes]]:
    """The error code and the values of one Fetch."""
    async with node.connect() as peer, asyncio.timeout(SECONDS_MAX):
        answer = await peer.ask(fetch(offset, topic=topic, part_bytes=3000, max_wait=500), 11)
    assert isinstance(answer, FetchResponse)
    (part,) = answer.responses[0].partitions
    found: list[bytes] = []
    data = memoryview(bytes(part.records or b""))
    while data:
        size = parse_header(data).size
        found += [record.value or b"" for record in decode_records(data[:size], size_max=1 << 20)]
        data = data[size:]
    return part.error_code, found


async def read_all(node: NodeHere, start: int, end: int, topic: str = "t") -> list[bytes]:
    """The values from `start` to `end`, by Fetch requests one after the other."""
    found: list[bytes] = []
    async with asyncio.timeout(SECONDS_MAX):
        while start + len(found) < end:
            code, more = await fetched(node, start + len(found), topic)
            assert code == 0, code
            found += more
    return found


async def filled(node: NodeHere, **configs: str) -> PartitionLog:
    """A topic of COUNT records, most of which are only in the tier."""
    await node.create("t", **{**TIERED, **configs})
    await write(node, values(range(COUNT)))
    log = log_of(node)
    await until(lambda: log.local_start_offset > COUNT // 2)
    return log


@looped
async def test_old_segments_are_read_from_the_tier(tmp_path: Path) -> None:
    """R13: a topic that is larger than its local retention is read from its beginning."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        assert log.log_start_offset == 0
        assert log.highest_tiered_offset >= log.local_start_offset - 1
        assert log.size_bytes < COUNT * RECORD_SIZE / 2
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
    async with tiered_node(tmp_path) as node:
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
        await write(node, values(range(COUNT, 2 * COUNT)))
        await until(lambda: log_of(node).local_start_offset > COUNT)
        assert await read_all(node, 0, 2 * COUNT) == values(range(2 * COUNT))


@looped
async def test_a_fetch_of_both_tiers_waits_for_the_remote_one(tmp_path: Path) -> None:
    """R13, K2: partitions of one request, of which one is read from the tier."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        code, found = await fetched(node, 7)
        assert (code, found[0]) == (0, values([7])[0])
        code, found = await fetched(node, log.local_start_offset)
        assert (code, found[0]) == (0, values([log.local_start_offset])[0])
        assert node.node.stats.remote.fetch_requests > 0
        assert node.node.stats.remote.fetch_errors == 0


@looped
async def test_a_log_that_has_failed_does_not_keep_others_from_the_tier(tmp_path: Path) -> None:
    """K8, R13: what a failed log has in the tier cannot be read; the tier's work goes on."""
    async with tiered_node(tmp_path) as node:
        await node.create("u")
        await write(node, [b"x"], "u")
        failed = log_of(node, "u")
        assert isinstance(failed, ReplicatedPartition)
        failed.log.fail(DiskError("a sync failed"))
        assert not failed.tier.has_copies
        await filled(node)
        assert await read_all(node, 0, COUNT) == values(range(COUNT))


@looped
async def test_retention_counts_both_tiers(tmp_path: Path) -> None:
    """R13, K5: by size: the log start moves, then objects go; the rest is read as before."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node, retention_bytes="100000")
        await until(lambda: log.log_start_offset > 0)
        start = log.log_start_offset
        await until(lambda: len(objects(tmp_path)) * 16384 < 120_000)
        code, _ = await fetched(node, 0)
        assert code == 1  # OFFSET_OUT_OF_RANGE
        assert await read_all(node, log.log_start_offset, COUNT) == values(
            range(log.log_start_offset, COUNT))
        assert log.log_start_offset >= start
        assert node.node.stats.remote.delete_requests > 0


@looped
async def test_deleted_records_are_deleted_in_both_tiers(tmp_path: Path) -> None:
    """R13, K5: DeleteRecords below the local start, then beyond it."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        before = len(objects(tmp_path))
        for offset in (50, COUNT - 1):
            done: list[object] = []
            log.delete_records(Offset(offset), node.node.broker.clock.now_ms(), timeout_ms=5000,
                               done=done.append)
            await until(lambda done=done: bool(done))  # type: ignore[misc]
            assert log.log_start_offset == offset
            assert await read_all(node, offset, COUNT) == values(range(offset, COUNT))
            await until(lambda before=before: len(  # type: ignore[misc]
                objects(tmp_path)) < before)
            before = len(objects(tmp_path))
        await until(lambda: not objects(tmp_path))


@looped
async def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    """R12, R13: broker.tiering.L2: neither objects nor metadata."""
    async with tiered_node(tmp_path) as node:
        await filled(node)
        await node.create("other", **TIERED)
        await write(node, values(range(COUNT)), "other")
        await until(lambda: log_of(node, "other").local_start_offset > COUNT // 2)
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        other_id = str(node.node.broker.cluster.state.topics["other"].topic_id)
        await until(lambda: all(other_id in str(each) for each in objects(tmp_path)))
        assert await read_all(node, 0, COUNT, "other") == values(range(COUNT))


@looped
async def test_a_topic_may_lose_its_tier(tmp_path: Path) -> None:
    """R13: with remote.log.delete.on.disable, what only the tier had is gone."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        await node.alter("t", remote_storage_enable="false",
                             remote_log_delete_on_disable="true")
        await until(lambda: not objects(tmp_path))
        assert log.log_start_offset == log.local_start_offset > 0
        assert await read_all(node, log.log_start_offset, COUNT) == values(
            range(log.log_start_offset, COUNT))


@looped
async def test_an_abandoned_copy_is_deleted(tmp_path: Path) -> None:
    """R15: broker.tiering.C2: who stops in the middle of a copy leaves metadata, which tells."""
    async with tiered_node(tmp_path) as node:
        await filled(node)
        count = len(objects(tmp_path))
        storage = node.node._tiering._storage  # type: ignore[union-attr]
        gate = asyncio.Event()
        really = storage.copy_log_segment_data

        async def slow(segment: object) -> bytes:
            await really(segment)  # type: ignore[arg-type]
            gate.set()
            await asyncio.sleep(SECONDS_MAX)
            return b""

        storage.copy_log_segment_data = slow  # type: ignore[method-assign, assignment]
        await write(node, values(range(COUNT, COUNT + 40)))
        await gate.wait()
        assert len(objects(tmp_path)) == count + 1
        abandoned = set(objects(tmp_path))
    async with tiered_node(tmp_path) as node:
        log = log_of(node)
        await until(lambda: log.highest_tiered_offset > COUNT)
        await until(lambda: bool(abandoned - set(objects(tmp_path))))
        assert await read_all(node, 0, COUNT + 40) == values(range(COUNT + 40))
