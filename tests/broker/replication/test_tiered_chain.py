"""Chains of real logs with a remote tier: what nodes delete locally, and what a new one is sent."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker.partitions.partition_errors import NotLeader
from quipu.model.errors import Code, OffsetOutOfRange, QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import PendingRead, ReadResult
from quipu.storage.config import LogConfig
from tests.broker.replication.rig import ANode, Rig
from tests.broker.replication.test_replication import chain_of
from tests.contract.partition_log.worlds import run_here, values_of
from tests.harness.memory_tier import MemoryTier
from tests.looped import looped

TIERED = LogConfig(segment_bytes=2000, index_interval_bytes=200, is_tiered=True,
                   local_retention_ms=0, retention_ms=-1)


def tiered_rig(path: Path, config: LogConfig = TIERED) -> tuple[Rig, MemoryTier]:
    tier = MemoryTier()
    return Rig(path, config=config, remote_reads=tier), tier


async def note(rig: Rig, node: ANode, last: Offset) -> None:
    """Have the head record that the tier has everything up to `last`."""
    noting = asyncio.ensure_future(
        node.partition.tier.note_tiered(last, rig.clock.now_ms(), timeout_ms=60_000))
    await rig.until(noting.done)
    await noting


async def move_to_tier(rig: Rig, *nodes: ANode) -> Offset:
    """Copy complete segments, have the head say so, and delete them on all `nodes`."""
    head = nodes[0].partition
    await rig.settled(*nodes)
    await head.flush()
    assert isinstance(rig.remote_reads, MemoryTier)
    last = rig.remote_reads.copy(head.tier)
    assert last is not None
    await note(rig, nodes[0], last)
    await rig.settled(*nodes)
    for node in nodes:
        await rig.until(lambda log=node.partition: log.committed_end == log.log_end)
        await node.partition.flush()
        assert node.partition.apply_retention(rig.clock.now_ms()) > 0
    return last


def read(node: ANode, offset: int) -> ReadResult | PendingRead:
    return node.partition.read(Offset(offset), 1 << 20, min_one=True)


async def everything(rig: Rig, node: ANode) -> list[int]:
    """The offsets of all records that a consumer reads at `node` from the start."""
    offset, found = int(node.partition.log_start_offset), list[int]()
    while offset < node.partition.high_watermark:
        result = read(node, offset)
        if not isinstance(result, ReadResult):
            arrived: list[bool] = []
            result.when_arrived(lambda seen=arrived: seen.append(True))
            await rig.until(lambda seen=arrived: seen)
            again = read(node, offset)
            assert isinstance(again, ReadResult)
            result.cancel()
            result = again
        assert result.error_code == 0
        new = [each for each, _ in values_of(result) if each >= offset]
        found += new
        offset = new[-1] + 1
    return found


@looped
async def test_every_replica_deletes_what_the_tier_has(tmp_path: Path) -> None:
    """R13: and each serves all records, from the log start on, also after a restart."""
    rig, _ = tiered_rig(tmp_path)
    a, b, c = await chain_of(rig, 3)
    for _ in range(60):
        await a.produce(bytes(100))
    assert a.partition.tier.only_local_bytes == a.partition.size_bytes
    last = await move_to_tier(rig, a, b, c)
    assert a.partition.tier.only_local_bytes == a.partition.size_bytes
    rig.check_identical()
    for node in (a, b, c):
        log = node.partition
        assert (log.log_start_offset, log.local_start_offset, log.highest_tiered_offset) == (
            0, last + 1, last)
        assert await everything(rig, node) == list(range(60))
    b.crash()
    rig.configure(serving=[1, 3], offline=[2])
    await rig.leads(a)
    b = rig.restart(b)
    assert (b.partition.log_start_offset, b.partition.local_start_offset) == (0, last + 1)
    rig.configure(serving=[1, 3], syncing=[2], new_epoch=False)
    await rig.until(lambda: (2, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 3, 2])
    await rig.leads(a)
    await a.produce(b"last")
    await rig.settled()
    assert await everything(rig, b) == list(range(61))


@looped
async def test_a_new_member_is_sent_only_what_the_tier_lacks(tmp_path: Path) -> None:
    """R13, V7: whether the others still have the rest locally or not."""
    keeps = LogConfig(segment_bytes=2000, is_tiered=True, local_retention_ms=-1, retention_ms=-1)
    rig, tier = tiered_rig(tmp_path, keeps)
    a, b = await chain_of(rig, 2)
    for number in range(60):
        await a.produce(b"%d" % number, bytes(100))
    await rig.settled()
    await a.partition.flush()
    last = tier.copy(a.partition.tier)
    assert last is not None
    await note(rig, a, last)
    assert a.partition.apply_retention(rig.clock.now_ms()) == 0
    assert a.partition.tier.only_local_bytes < a.partition.size_bytes // 3
    c = rig.add()
    rig.configure(serving=[1, 2], syncing=[3], new_epoch=False)
    await a.produce(b"meanwhile")
    await rig.until(lambda: (3, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2, 3])
    await rig.leads(a)
    await rig.settled()
    assert a.partition.local_start_offset == b.partition.local_start_offset == 0
    log = c.partition
    assert (log.log_start_offset, log.local_start_offset, log.highest_tiered_offset) == (
        0, last + 1, last)
    assert len(c.files()) < len(a.files()) // 3
    assert await everything(rig, c) == list(range(121))
    assert c.partition.tier.epochs() == a.partition.tier.epochs()
    assert c.partition.epoch_end(c.partition.leader_epoch) == (
        a.partition.epoch_end(a.partition.leader_epoch))


@looped
async def test_a_member_that_was_away_continues_after_local_segments_are_gone(
    tmp_path: Path,
) -> None:
    """R13, V16: its end lies below the others' local start: it begins anew, and loses nothing."""
    rig, _ = tiered_rig(tmp_path)
    a, b = await chain_of(rig, 2)
    for _ in range(10):
        await a.produce(bytes(100))
    b.crash()
    rig.configure(serving=[1], offline=[2])
    await rig.leads(a)
    for _ in range(50):
        await a.produce(bytes(100))
    last = await move_to_tier(rig, a)
    assert last > 40
    b = rig.restart(b)
    rig.configure(serving=[1], syncing=[2], new_epoch=False)
    await rig.until(lambda: (2, rig.version) in rig.in_sync)
    rig.configure(serving=[1, 2])
    await rig.leads(a)
    await rig.settled()
    assert b.partition.local_start_offset == last + 1
    assert await everything(rig, b) == list(range(60))
    rig.configure(serving=[2, 1])  # and it can lead
    await rig.leads(b)
    await b.produce(b"more")
    assert b.partition.tier.epoch_for_offset(last) == 2
    assert b.partition.tier.epoch_for_offset(Offset(0)) == 1


@looped
async def test_only_the_leader_says_what_is_tiered(tmp_path: Path) -> None:
    """R13: and only of what is committed; a deposed leader is refused."""
    rig, tier = tiered_rig(tmp_path)
    a, b = await chain_of(rig, 2)
    for _ in range(30):
        await a.produce(bytes(100))
    await rig.settled()
    with pytest.raises(NotLeader):
        await b.partition.tier.note_tiered(Offset(0), 0)
    with pytest.raises(OffsetOutOfRange):
        await a.partition.tier.note_tiered(Offset(30), 0)
    rig.net.cut(1, 2)
    a.append(bytes(1800), acks=1)
    a.append(bytes(100), acks=1)
    await rig.turns(30)
    await a.partition.flush()
    assert {segment.end_offset <= 30 for segment in a.partition.tier.segments()} == {True}
    noting = asyncio.ensure_future(
        a.partition.tier.note_tiered(Offset(5), rig.clock.now_ms(), timeout_ms=300))
    await rig.until(noting.done)
    late = noting.exception()
    assert isinstance(late, QuipuError)
    assert late.code is Code.REQUEST_TIMED_OUT
    assert a.partition.apply_retention(rig.clock.now_ms()) == 0  # it is not committed
    assert tier.read_count == 0


@looped
async def test_reads_without_access_to_the_tier_are_retried(tmp_path: Path) -> None:
    """R13: OFFSET_NOT_AVAILABLE; after OFFSET_OUT_OF_RANGE a consumer would skip the records."""
    rig, _ = tiered_rig(tmp_path)
    (a,) = await chain_of(rig, 1)
    for _ in range(30):
        await a.produce(bytes(100))
    last = await move_to_tier(rig, a)
    a.partition.remote_reads = None
    for offset in (0, last):
        result = read(a, offset)
        assert isinstance(result, ReadResult)
        assert result.error_code == Code.OFFSET_NOT_AVAILABLE
    with pytest.raises(QuipuError) as refused:
        await a.partition.find_timestamp(0, run_here)
    assert refused.value.code is Code.OFFSET_NOT_AVAILABLE


@looped
async def test_a_tier_that_is_given_up_is_forgotten_everywhere(tmp_path: Path) -> None:
    """R13: the log starts where it starts locally, on each replica."""
    rig, _ = tiered_rig(tmp_path)
    a, b = await chain_of(rig, 2)
    for _ in range(30):
        await a.produce(bytes(100))
    last = await move_to_tier(rig, a, b)
    forgetting = asyncio.ensure_future(a.partition.tier.forget_tier(rig.clock.now_ms()))
    await rig.until(forgetting.done)
    await rig.settled()
    for node in (a, b):
        log = node.partition
        assert (log.log_start_offset, log.local_start_offset, log.highest_tiered_offset) == (
            last + 1, last + 1, -1)
        result = read(node, 0)
        assert isinstance(result, ReadResult)
        assert result.error_code == Code.OFFSET_OUT_OF_RANGE
