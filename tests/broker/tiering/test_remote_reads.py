"""Reads of the tier: shared, bounded, and only of the log's own history."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.timestamp_searches import TimestampSearch, search
from quipu.broker.tiering.remote_reads import TierReads
from quipu.broker.tiering.roles import MetadataRoles
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, Offset, TopicPartition
from quipu.model.partition_log import PartitionLog, TimestampAndOffset
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.runtime.shared_reads import WaitingRead
from quipu.wire.messages.k02_list_offsets import ListOffsetsPartitionResponse
from tests.broker.tiering.world import TierWorld, WorldNode
from tests.broker.tiering.world_parts import TOPIC_ID, WorldStore
from tests.looped import LoopClock, timeless

PENDING_MAX = 9  # of a node of the world


@asynccontextmanager
async def copied() -> AsyncIterator[tuple[TierWorld, WorldNode]]:
    """A node that leads, and has copied 20 records in batches of 5."""
    world = TierWorld(0)
    world.is_faulty = False
    world.log.leader_epoch = Epoch(1)
    world.log.append([5, 5, 5, 5], LoopClock().now_ms())
    node = WorldNode(world, 0)
    await node.lead(Epoch(1))
    while world.log.tiered < 19:
        await asyncio.sleep(0.01)
    yield world, node
    node.crash()
    await asyncio.sleep(0)
    world.loop.close()


def read(node: WorldNode, offset: int, end: int = 20) -> list[memoryview] | WaitingRead:
    assert isinstance(node.reads, TierReads)
    return node.reads.read(cast("PartitionLog", node.led), Offset(offset), 1 << 20, min_one=True,
                           end=Offset(end))


def read_anew(node: WorldNode, offset: int) -> list[memoryview] | WaitingRead:
    """The same, of a node that remembers no segment."""
    assert isinstance(node.reads, TierReads)
    node.reads._recent.clear()
    return read(node, offset)


async def arrival(waiting: list[memoryview] | WaitingRead) -> WaitingRead:
    assert isinstance(waiting, WaitingRead)
    arrived = asyncio.Event()
    waiting.when_arrived(arrived.set)
    await arrived.wait()
    return waiting


@timeless
async def test_reads_of_one_offset_are_one_read() -> None:
    """R16: broker.tiering.F1: the result is there while somebody waits for it, and no longer."""
    async with copied() as (_, node):
        one, other = read(node, 7), read(node, 7)
        waiting = [await arrival(each) for each in (one, other)]
        assert node.stats.remote.fetch_requests == 1
        found = read(node, 7)
        assert isinstance(found, list)
        assert sum(map(len, found)) > 0
        waiting[0].cancel()
        assert isinstance(read(node, 7), list)
        waiting[1].cancel()
        assert isinstance(node.reads, TierReads)
        assert node.reads._reads == {}
        again = read_anew(node, 7)
        assert isinstance(again, WaitingRead)
        again.cancel()
        while node.reads.pending:
            await asyncio.sleep(0.01)
        assert node.reads._reads == {}


@timeless
async def test_what_the_cache_holds_is_returned_at_once() -> None:
    """R16: broker.tiering.F4: of the segment that was read last, and only of the log's epoch."""
    async with copied() as (world, node):
        (await arrival(read(node, 7))).cancel()
        before = node.stats.remote.fetch_requests
        found = read(node, 7)
        assert isinstance(found, list)
        assert bytes(found[0])
        assert node.stats.remote.fetch_requests == before + 1
        world.log.epochs = [(Epoch(2), Offset(0))]  # broker.tiering.F3
        await arrival(read(node, 7))
        with pytest.raises(RequestError, match="no segment"):
            read(node, 7)


@timeless
async def test_the_next_segment_is_read_ahead() -> None:
    """R16: a consumer that nears the end of a segment finds the beginning of the next one held."""
    async with copied() as (world, node):
        world.log.append([5], LoopClock().now_ms())
        while world.log.tiered < 24:
            await asyncio.sleep(0.01)
        assert isinstance(node.reads, TierReads)
        (await arrival(read(node, 0, 25))).cancel()  # a sequential reader, of one chunk
        while node.reads._tasks:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(WorldStore, "get_ranges", None)  # nothing is fetched any more
            waiting = await arrival(read(node, 20, 25))
            found = read(node, 20, 25)
            waiting.cancel()
        assert isinstance(found, list)
        assert sum(map(len, found)) > 0


@timeless
async def test_one_read_too_many_is_refused() -> None:
    """R15: broker.tiering.F2: with an error that clients retry."""
    async with copied() as (_, node):
        waiting = [read(node, offset) for offset in range(PENDING_MAX)]
        with pytest.raises(RequestError, match=r"max\.pending\.tasks") as refused:
            read(node, PENDING_MAX)
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        (await arrival(waiting[0])).cancel()
        assert isinstance(read_anew(node, PENDING_MAX), WaitingRead)


@timeless
async def test_another_history_is_never_read() -> None:
    """R3, R14: broker.tiering.F3: the same offsets of another leader epoch are not the log's."""
    async with copied() as (world, node):
        world.log.epochs = [(Epoch(2), Offset(0))]
        await arrival(read(node, 7))
        with pytest.raises(RequestError, match="no segment") as refused:
            read(node, 7)
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        world.log.epochs = [(Epoch(1), Offset(0))]
        await arrival(read(node, 8))
        assert isinstance(read(node, 8), list)


class SlowMetadata:
    """Notes what it is told, and takes its time."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_partition_leadership_changes(
        self, leaders: Mapping[TopicIdPartition, int], followers: Collection[TopicIdPartition]
    ) -> None:
        text = f"lead in {next(iter(leaders.values()))}" if leaders else "follow"
        assert leaders or followers
        self.told.append(f"{text} ...")
        await asyncio.sleep(1)
        self.told.append(text)


@timeless
async def test_roles_change_one_after_the_other() -> None:
    """R12: broker.tiering.R1: a read waits until the partition is led or followed."""
    metadata = SlowMetadata()
    roles = MetadataRoles(cast("RemoteLogMetadataManager", metadata))
    partition = TopicIdPartition(TOPIC_ID, 0, "t")
    tasks = [asyncio.ensure_future(each) for each in (
        roles.lead(partition, 1), roles.follow(partition), roles.lead(partition, 2),
        roles.follow(partition, though_leading=True), roles.follow(partition))]
    await asyncio.sleep(5)
    assert metadata.told == []  # it is not open
    roles.opened.set()
    await asyncio.gather(*tasks)
    assert metadata.told == [
        "lead in 1 ...", "lead in 1", "lead in 2 ...", "lead in 2", "follow ...", "follow"]
    assert not roles.leads(partition)


class _Search:
    """What `search` needs of a partition that begins in the tier, and how many run at a time."""

    running = 0
    most = 0
    log_start_offset, local_start_offset = Offset(0), Offset(100)
    topic_partition = TopicPartition("t", 0)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def find_timestamp(self, timestamp_ms: int, run_long: object) -> TimestampAndOffset:
        del run_long
        _Search.running += 1
        _Search.most = max(_Search.most, _Search.running)
        await asyncio.sleep(1)
        _Search.running -= 1
        if self.error is not None:
            raise self.error
        return TimestampAndOffset(timestamp_ms, Offset(7), Epoch(0))


async def searched(
    partitions: Sequence[_Search], *, threads: int, timeout_ms: int = 30_000
) -> tuple[list[tuple[int, int]], float]:
    """Codes and offsets of a search in each partition, and the seconds that all took."""
    _Search.running = _Search.most = 0
    settings = SimpleNamespace(
        remote_list_offsets_request_timeout_ms=timeout_ms, request_max_wait_ms=60_000,
        remote_log_reader_threads=threads)
    broker = SimpleNamespace(
        clock=LoopClock(), workers=SimpleNamespace(run_patiently=None), settings=settings,
        cluster=SimpleNamespace(settings=settings))
    results = [ListOffsetsPartitionResponse(partition_index=0) for _ in partitions]
    began = broker.clock.monotonic()
    await search(
        cast("Broker", broker),
        [TimestampSearch(result, cast("PartitionLog", partition), 5, Offset(50))
         for result, partition in zip(results, partitions, strict=True)],
        cast("Context", SimpleNamespace(api_version=11, budget=None)), timeout_ms=0)
    return [(each.error_code, each.offset) for each in results], broker.clock.monotonic() - began


@timeless
async def test_searches_of_one_request_wait_for_the_tier_together() -> None:
    """R16: broker.tiering.F2: as many as it serves at a time; equal ones are one search."""
    ten = [_Search() for _ in range(10)]
    found, seconds = await searched([*ten, ten[0]], threads=4)
    assert found == [(0, 7)] * 11
    assert (_Search.most, seconds) == (4, pytest.approx(3))
    found, seconds = await searched(ten, threads=1)
    assert (_Search.most, seconds) == (1, pytest.approx(10))


@timeless
async def test_searches_fail_one_by_one() -> None:
    """R15: an error of one is that of one; a bug ends the request, and leaves no task behind."""
    refused = RequestError("no", code=Code.KAFKA_STORAGE_ERROR)
    found, _ = await searched([_Search(), _Search(refused), _Search()], threads=9)
    assert found == [(0, 7), (Code.KAFKA_STORAGE_ERROR, -1), (0, 7)]
    found, seconds = await searched([_Search(), _Search()], threads=9, timeout_ms=100)
    assert (found, seconds) == ([(Code.REQUEST_TIMED_OUT, -1)] * 2, pytest.approx(0.1))
    with pytest.raises(ValueError, match="bug"):
        await searched([_Search(ValueError("bug")), *(_Search() for _ in range(5))], threads=2)
    await asyncio.sleep(0.01)
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not any(name.startswith("search by timestamp") for name in names)
