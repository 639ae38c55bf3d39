"""ListOffsets, Fetch and DeleteRecords of a topic with a remote tier, by raw requests."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.model.errors import Code
from quipu.model.ids import Offset
from quipu.model.partition_log import PartitionLog
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.serving.test_fetch import fetch, values
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.harness.memory_tier import MemoryTier
from tests.looped import looped

T0 = 1_600_000_000_000
TIER = {"remote_log_storage_system_enable": "true", "remote_log_storage_url": "s3://bucket"}


async def tiered_node(node: NodeHere, peer: Peer, *, count: int = 8) -> MemoryTier:
    """Topic `t` with two partitions; of the first, all but the last records are in the tier."""
    tier = MemoryTier()
    node.node.broker.partitions.use_remote_reads(tier)
    await node.create("t", 2, remote_storage_enable="true", segment_bytes="16384",
                      local_retention_ms="0", retention_ms="-1",
                      message_timestamp_before_max_ms=str(2**63 - 1))
    for number in range(count):
        batch = batch_of(b"%d" % number + bytes(6000), timestamp=T0 + number)
        await peer.ask(produce("t", batch, acks=-1), 9)
    return tier


async def move_to_tier(node: NodeHere, tier: MemoryTier) -> PartitionLog:
    """Copy what can be, and delete it locally."""
    partition = node.node.broker.partitions.find("t", 0)
    assert isinstance(partition, ReplicatedPartition)
    await partition.flush()
    last = tier.copy(partition.tier)
    assert last is not None
    await partition.tier.note_tiered(last, T0)
    await partition.flush()
    assert partition.apply_retention(T0 + 10**9) > 0
    return partition


async def list_offset(
    peer: Peer, timestamp: int, *, version: int = 11, timeout_ms: int = 0
) -> tuple[int, int, int]:
    """(error code, offset, leader epoch)."""
    response = await peer.ask(ListOffsetsRequest(timeout=timeout_ms, topics=[ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])],
    ), version)
    (found,) = response.topics[0].partitions
    return found.error_code, found.offset, found.leader_epoch


@looped
async def test_special_offsets_of_a_tiered_log(tmp_path: Path) -> None:
    """R13: -2 is the start of both tiers, -4 the local one, -5 the end of the remote one, and -6
    what is copied next; each from the version on that introduced it.
    """
    async with NodeHere(tmp_path, **TIER) as node, node.connect() as peer:
        tier = await tiered_node(node, peer)
        epoch = node.node.broker.partitions.find("t", 0).leader_epoch  # type: ignore[union-attr]
        assert [await list_offset(peer, special) for special in (-2, -4, -5, -6)] == [
            (0, 0, epoch), (0, 0, epoch), (0, -1, -1), (0, 0, epoch)]
        log = await move_to_tier(node, tier)
        last = log.highest_tiered_offset
        assert last == 5
        assert [await list_offset(peer, special) for special in (-1, -2, -4, -5, -6)] == [
            (0, 8, epoch), (0, 0, epoch), (0, last + 1, epoch), (0, last, epoch),
            (0, last + 1, epoch)]
        for special, version in ((-4, 8), (-5, 9), (-6, 11)):
            assert (await list_offset(peer, special, version=version))[0] == 0
            assert (await list_offset(peer, special, version=version - 1))[0] == (
                Code.UNSUPPORTED_VERSION)


@looped
async def test_without_a_tier_the_special_offsets_are_none(tmp_path: Path) -> None:
    """R13: -4 is the log start, -5 and -6 are -1 with epoch -1."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await peer.ask(produce("t", batch_of(b"x"), acks=-1), 9)
        assert [(await list_offset(peer, special))[:2] for special in (-2, -4, -5, -6)] == [
            (0, 0), (0, 0), (0, -1), (0, -1)]
        assert (await list_offset(peer, -5))[2] == -1


@looped
async def test_records_are_found_by_time_in_both_tiers(tmp_path: Path) -> None:
    """R13: the remote one first; a search that takes too long is REQUEST_TIMED_OUT."""
    async with NodeHere(tmp_path, **TIER) as node, node.connect() as peer:
        tier = await tiered_node(node, peer)
        await move_to_tier(node, tier)
        for number in (0, 3, 5, 6, 7):
            assert (await list_offset(peer, T0 + number))[:2] == (0, number)
        assert (await list_offset(peer, T0 + 8))[:2] == (0, -1)
        assert (await list_offset(peer, -3))[:2] == (0, 7)

        async def never(*_: Any, **__: Any) -> None:
            await asyncio.sleep(3600)

        tier.find_timestamp = never  # type: ignore[assignment]
        assert (await list_offset(peer, T0, timeout_ms=20))[0] == Code.REQUEST_TIMED_OUT
        assert (await list_offset(peer, -2))[:2] == (0, 0)


@looped
async def test_one_fetch_reads_both_tiers(tmp_path: Path) -> None:
    """R13: a partition in the tier and a local one; and on from one tier to the other."""
    async with NodeHere(tmp_path, **TIER) as node, node.connect() as peer:
        tier = await tiered_node(node, peer)
        await move_to_tier(node, tier)
        await peer.ask(produce("t", None, batch_of(b"local"), acks=-1), 9)
        both = await peer.ask(fetch(0, 0, max_wait=5000), 12)
        assert [value and value[:1] for value in values(both, 0)] == [
            b"%d" % number for number in range(6)]
        assert values(both, 1) == [b"local"]
        assert both.responses[0].partitions[0].log_start_offset == 0
        rest = await peer.ask(fetch(6, max_wait=5000), 12)
        assert [value and value[:1] for value in values(rest)] == [b"6", b"7"]
        assert (tier.read_count, tier.reads) == (1, [])


@looped
async def test_bytes_that_do_not_come_hold_up_no_other_partition_for_long(tmp_path: Path) -> None:
    """R13: remote.fetch.max.wait.ms; whatever the client would wait for new records."""
    async with NodeHere(
            tmp_path, **TIER, remote_fetch_max_wait_ms="30") as node, node.connect() as peer:
        tier = await tiered_node(node, peer)
        await move_to_tier(node, tier)
        await peer.ask(produce("t", None, batch_of(b"local"), acks=-1), 9)
        tier.holds_reads = True
        began = time.monotonic()
        response = await peer.ask(fetch(0, 0, max_wait=15_000), 12)
        assert time.monotonic() - began < 10
        assert (values(response, 0), values(response, 1)) == ([], [b"local"])
        assert tier.reads == []


@looped
async def test_deleted_records_are_out_of_range_in_both_tiers(tmp_path: Path) -> None:
    """R13, K5: DeleteRecords below and beyond the local start; only below the log start."""
    async with NodeHere(tmp_path, **TIER) as node, node.connect() as peer:
        tier = await tiered_node(node, peer)
        log = await move_to_tier(node, tier)
        for before, local_start in ((3, 6), (7, 7)):
            response = await peer.ask(DeleteRecordsRequest(timeout=5000, topics=[
                DeleteRecordsTopic(name="t", partitions=[
                    DeleteRecordsPartition(partition_index=0, offset=before)])]), 2)
            (deleted,) = response.topics[0].partitions
            assert (deleted.error_code, deleted.low_watermark) == (0, before)
            assert (log.log_start_offset, log.local_start_offset) == (before, local_start)
            gone = await peer.ask(fetch(before - 1, max_wait=5000), 12)
            assert gone.responses[0].partitions[0].error_code == Code.OFFSET_OUT_OF_RANGE
            kept = await peer.ask(fetch(before, max_wait=5000), 12)
            assert kept.responses[0].partitions[0].error_code == 0
        assert [(await list_offset(peer, special))[:2] for special in (-2, -4, -5, -6)] == [
            (0, 7), (0, 7), (0, 5), (0, 7)]


@looped
async def test_settings_of_a_tiered_topic_change_while_it_is_used(tmp_path: Path) -> None:
    """R13: local limits, the end of copies, the end of the tier."""
    async with NodeHere(tmp_path, **TIER) as node, node.connect() as peer:
        tier = await tiered_node(node, peer)
        partition = await move_to_tier(node, tier)
        assert isinstance(partition, ReplicatedPartition)
        await node.alter("t", local_retention_ms="5000", retention_ms="9000")
        assert partition.log.config.local_retention_ms == 5000
        await node.alter("t", local_retention_ms="-2", remote_log_copy_disable="true")
        assert (partition.log.config.local_retention_ms, partition.tier.is_copied) == (9000, False)
        assert partition.tier.segments() == []
        await node.alter("t", remote_storage_enable="false", remote_log_delete_on_disable="true")
        assert (partition.tier.is_enabled, partition.highest_tiered_offset) == (False, -1)
        await partition.tier.forget_tier(T0)
        assert partition.log_start_offset == partition.local_start_offset == Offset(6)
        with pytest.raises(AssertionError):
            await node.alter("t", local_retention_ms="9001", remote_storage_enable="true")
