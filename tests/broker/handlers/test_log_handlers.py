"""The handlers that ask a partition's log: ListOffsets, DeleteRecords, OffsetForLeaderEpoch,
DescribeLogDirs, DescribeProducers.
"""

from pathlib import Path
from typing import Any

import pytest

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import Code, CorruptLog
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
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quipu.wire.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from quipu.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from quipu.wire.record_batch import Record, encode_batch
from tests.harness.here import NodeHere, Peer, produce
from tests.looped import looped

T0 = 1_700_000_000_000


async def fill(
    peer: Peer, *timestamps: int, producer: tuple[int, int, int] = (-1, -1, -1)
) -> None:
    """One batch with a record per timestamp."""
    batch = encode_batch(
        [Record(None, b"v", timestamp=timestamp) for timestamp in timestamps],
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    response = await peer.ask(produce("t", batch), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


async def list_offset(
    peer: Peer, timestamp: int, *, version: int = 11, partition: int = 0, epoch: int = -1
) -> tuple[int, int, int]:
    """(error code, timestamp, offset)."""
    response = await peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)])],
    ), version)
    (found,) = response.topics[0].partitions
    return found.error_code, found.timestamp, found.offset


@pytest.mark.parametrize("version", range(1, 12))
@looped
async def test_offsets_are_found_by_time_and_by_end(tmp_path: Path, version: int) -> None:
    """T5, K2: internal batches are not counted and their times not found."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_timestamp_before_max_ms=str(2**63 - 1))
        await fill(peer, T0, T0 + 10)
        partition = node.node.broker.partitions.find("t", 0)
        assert partition is not None
        partition.internal.append(CONFIGURATION, [(None, b"c")], T0 + 900)
        await fill(peer, T0 + 30, T0 + 30)

        assert await list_offset(peer, -1, version=version) == (0, -1, 4)
        assert await list_offset(peer, -2, version=version) == (0, -1, 0)
        assert await list_offset(peer, T0 + 11, version=version) == (0, T0 + 30, 2)
        assert await list_offset(peer, T0 + 10, version=version) == (0, T0 + 10, 1)
        assert await list_offset(peer, T0 + 31, version=version) == (0, -1, -1)
        newest = await list_offset(peer, -3, version=version)
        assert newest == ((0, T0 + 30, 2) if version >= 7 else (Code.UNSUPPORTED_VERSION, -1, -1))
        local = await list_offset(peer, -4, version=version)
        assert local == ((0, -1, 0) if version >= 8 else (Code.UNSUPPORTED_VERSION, -1, -1))
        remote = await list_offset(peer, -5, version=version)
        assert remote == ((0, -1, -1) if version >= 9 else (Code.UNSUPPORTED_VERSION, -1, -1))


@looped
async def test_a_bad_partition_does_not_fail_the_others(tmp_path: Path) -> None:
    """K2: each partition has its own error."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", partitions=2)
        assert (await list_offset(peer, -1, partition=9))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert (await list_offset(peer, -1, epoch=999))[0] == Code.UNKNOWN_LEADER_EPOCH
        broken = node.node.broker.partitions.find("t", 1)
        assert broken is not None
        broken.log.fail(CorruptLog("broken for a test"))
        assert (await list_offset(peer, -1, partition=1))[0] == Code.KAFKA_STORAGE_ERROR
        assert await list_offset(peer, -1) == (0, -1, 0)


async def delete(peer: Peer, offsets: dict[int, int], version: int = 2) -> dict[int, Any]:
    response = await peer.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)
                              for index, offset in offsets.items()])]), version)
    return {part.partition_index: (part.error_code, part.low_watermark)
            for part in response.topics[0].partitions}


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("flush_messages", ["1", "10000"])
@looped
async def test_records_are_deleted_up_to_an_offset(
    tmp_path: Path, version: int, flush_messages: str
) -> None:
    """K5: the log starts there; -1 is the high watermark; deleting again changes nothing."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", flush_messages=flush_messages)
        await fill(peer, T0, T0, T0)
        assert await delete(peer, {0: 2}, version) == {0: (0, 2)}
        assert await delete(peer, {0: 1}, version) == {0: (0, 2)}
        assert await list_offset(peer, -2) == (0, -1, 2)
        assert await delete(peer, {0: 9, 7: 0}, version) == {
            0: (Code.OFFSET_OUT_OF_RANGE, -1), 7: (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)}
        assert await delete(peer, {0: -2}, version) == {0: (Code.OFFSET_OUT_OF_RANGE, -1)}
        assert await delete(peer, {0: -1}, version) == {0: (0, 3)}
        assert await list_offset(peer, -1) == (0, -1, 3)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        assert await list_offset(peer, -2) == (0, -1, 3)


@pytest.mark.parametrize("version", range(2, 5))
@looped
async def test_the_end_of_an_epoch_is_told(tmp_path: Path, version: int) -> None:
    """K2: the leader's own epoch ends where its log does; a later one is not known."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")

        async def end(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
            response = await peer.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(
                topic="t", partitions=[OffsetForLeaderPartition(
                    partition=partition, leader_epoch=epoch, current_leader_epoch=current)])],
            ), version)
            (found,) = response.topics[0].partitions
            return found.error_code, found.leader_epoch, found.end_offset

        partition = node.node.broker.partitions.find("t", 0)
        assert partition is not None
        now = partition.leader_epoch
        assert await end(now) == (0, now, 0)
        await fill(peer, T0, T0)
        assert await end(now) == (0, now, 2)
        assert await end(now + 7) == (0, -1, -1)
        assert (await end(now, current=now + 3))[0] == Code.UNKNOWN_LEADER_EPOCH
        assert (await end(now, partition=3))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 5))
@looped
async def test_the_directory_and_its_logs_are_told(tmp_path: Path, version: int) -> None:
    """K1: with sizes that grow; null is all topics; what is not here is left out."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", partitions=2)
        await node.create("u")

        async def sizes(topics: list[DescribableLogDirTopic] | None) -> dict[Any, int]:
            response = await peer.ask(DescribeLogDirsRequest(topics=topics), version)
            assert response.error_code == 0
            (result,) = response.results
            assert (result.error_code, result.log_dir) == (0, str(tmp_path / "data"))
            if version >= 4:
                assert 0 < result.usable_bytes < result.total_bytes
            return {(topic.name, part.partition_index): part.partition_size
                    for topic in result.topics for part in topic.partitions}

        before = await sizes(None)
        assert sorted(before) == [("t", 0), ("t", 1), ("u", 0)]
        await fill(peer, T0)
        after = await sizes([DescribableLogDirTopic(topic="t", partitions=[0, 5]),
                             DescribableLogDirTopic(topic="none", partitions=[0])])
        assert list(after) == [("t", 0)]
        assert after["t", 0] > before["t", 0]


@looped
async def test_the_producers_of_a_partition_are_told(tmp_path: Path) -> None:
    """K2: by id, with their epoch and last sequence."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await fill(peer, T0, T0, producer=(1000, 2, 0))
        await fill(peer, T0)
        response = await peer.ask(DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=[0, 4])]), 0)
        known, unknown = response.topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence,
                producer.coordinator_epoch, producer.current_txn_start_offset) == (
            1000, 2, 1, -1, -1)
        assert producer.last_timestamp > 0
        assert unknown.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
