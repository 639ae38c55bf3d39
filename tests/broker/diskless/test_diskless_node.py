"""Diskless topics on one node: a SQLite control plane, and objects in a directory."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.compression import Compression
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
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
from quipu.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from quipu.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from quipu.wire.record_batch import TRANSACTIONAL_BIT, Record, encode_batch, parse_header
from tests.broker.diskless.parts import (
    create,
    diskless_node,
    fetch,
    list_offset,
    partition,
    put,
    read_all,
    records_of,
    until,
    until_true,
)
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.looped import looped


@looped
async def test_what_is_produced_is_fetched(tmp_path: Path) -> None:
    """D1, D5: offsets without gaps; nothing of it is in the directory of logs."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        first, second = await put(peer, "t", b"a", b"b"), await put(peer, "t", b"c", acks=1)
        assert (first.error_code, first.base_offset, first.log_start_offset) == (0, 0, 0)
        assert (second.error_code, second.base_offset) == (0, 2)
        assert await read_all(peer, "t") == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert (await list_offset(peer, "t", -1)).offset == 3
        assert (await list_offset(peer, "t", -2)).offset == 0
        assert [path.name for path in (tmp_path / "data").iterdir() if path.name.startswith(
            "t-")] == []
        assert list((tmp_path / "data" / "diskless").rglob("*"))


@looped
async def test_acks_0_is_stored_too(tmp_path: Path) -> None:
    """D6: without a response; the records are there in the end."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        peer.send(produce("t", batch_of(b"x"), acks=0), 9)
        peer._asked.clear()  # no response comes
        await until_true(lambda: _end_is(peer, 1))


async def _end_is(peer: Peer, end: int) -> bool:
    return bool((await list_offset(peer, "t", -1)).offset == end)


@pytest.mark.parametrize("codec", Compression)
@looped
async def test_every_codec_comes_back_as_it_was_sent(tmp_path: Path, codec: Compression) -> None:
    """D1: the batch is stored as its producer compressed it."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        now = int(time.time() * 1000)
        batch = encode_batch([Record(b"k", bytes([65 + each]) * 200, (), now)
                              for each in range(20)], compression=codec)
        response = await peer.ask(produce("t", batch, acks=-1), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        part = await fetch(peer, "t", 0)
        assert parse_header(memoryview(bytes(part.records))).crc == parse_header(
            memoryview(batch)).crc
        assert [value for _, value in records_of(part)] == [
            bytes([65 + each]) * 200 for each in range(20)]


@looped
async def test_an_idempotent_producer_is_exact(tmp_path: Path) -> None:
    """D3: a repeat has its first offsets; a gap is out of order; an old epoch is refused."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)

        async def send(value: bytes, sequence: int, epoch: int = 0) -> tuple[int, int]:
            part = await put(peer, "t", value, producer_id=7, producer_epoch=epoch,
                             base_sequence=sequence)
            return part.error_code, part.base_offset

        assert await send(b"a", 0) == (0, 0)
        assert await send(b"b", 1) == (0, 1)
        assert await send(b"a", 0) == (0, 0)
        assert (await send(b"d", 5))[0] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(b"c", 0, epoch=1) == (0, 2)
        assert (await send(b"e", 2))[0] == Code.INVALID_PRODUCER_EPOCH
        assert await read_all(peer, "t") == [(0, b"a"), (1, b"b"), (2, b"c")]
        response = await peer.ask(DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=[0])]), 0)
        (producer,) = response.topics[0].partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 0)


@looped
async def test_pipelined_batches_of_one_producer_stay_in_order(tmp_path: Path) -> None:
    """D6: many requests of one connection share objects; the responses are in order."""
    async with diskless_node(tmp_path, diskless_flush_interval_ms="20") as node, (
            node.connect()) as peer:
        await create(node)
        for number in range(50):
            peer.send(produce("t", batch_of(
                b"%d" % number, producer_id=1, producer_epoch=0, base_sequence=number),
                acks=-1), 9)
        answers: list[Any] = [await peer.answer() for _ in range(50)]
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert offsets == list(range(50))
        assert node.node.diskless is not None
        assert node.node.diskless.writer.stats.commits < 25


@looped
async def test_both_kinds_of_timestamps(tmp_path: Path) -> None:
    """D1, D2: CreateTime is kept and found by time; LogAppendTime is the broker's."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node, "t")
        await create(node, "u", message_timestamp_type="LogAppendTime")
        for at in (1000, 3000, 2000):
            assert (await put(peer, "t", b"%d" % at, timestamp=at)).error_code == 0
        found = [await list_offset(peer, "t", at) for at in (0, 1001, 3000, 3001, -3)]
        assert [(each.offset, each.timestamp) for each in found] == [
            (0, 1000), (1, 3000), (1, 3000), (-1, -1), (1, 3000)]
        before = int(time.time() * 1000)
        part = await put(peer, "u", b"x", timestamp=1000)
        assert part.log_append_time >= before - 1000
        newest = await list_offset(peer, "u", -3)
        assert newest.timestamp == part.log_append_time


@looped
async def test_bad_batches_are_refused_one_by_one(tmp_path: Path) -> None:
    """D6: too large, of a transaction, of a partition that is not there; others are stored."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node, "t", 3, max_message_bytes="1000")
        response = await peer.ask(produce(
            "t", batch_of(b"x" * 2000), batch_of(b"ok"), bytes(batch_of(b"y"))[:-1], batch_of(b"z"),
            acks=-1), 9)
        codes = [part.error_code for part in response.responses[0].partition_responses]
        assert codes == [Code.MESSAGE_TOO_LARGE, 0, Code.INVALID_RECORD,
                         Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert await read_all(peer, "t", index=1) == [(0, b"ok")]
        assert await read_all(peer, "t", index=0) == []


@looped
async def test_one_request_to_diskless_and_classic_topics(tmp_path: Path) -> None:
    """D6: each partition has its own outcome, whichever kind it is."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node, "t")
        await node.create("classic")
        data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(
            index=index, records=memoryview(bytes(batch_of(b"v"))))])
            for name, index in (("t", 0), ("classic", 0), ("t", 9), ("missing", 0))]
        response = await peer.ask(ProduceRequest(acks=-1, timeout=10_000, topic_data=data), 9)
        found = {(topic.name, part.index): part.error_code
                 for topic in response.responses for part in topic.partition_responses}
        assert found == {("t", 0): 0, ("classic", 0): 0,
                         ("t", 9): Code.UNKNOWN_TOPIC_OR_PARTITION,
                         ("missing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION}
        assert await read_all(peer, "t") == await read_all(peer, "classic") == [(0, b"v")]


@looped
async def test_a_waiting_fetch_is_woken_by_a_commit(tmp_path: Path) -> None:
    """D5: long before its wait would end."""
    async with diskless_node(tmp_path) as node, node.connect() as peer, node.connect() as other:
        await create(node)
        waiting = asyncio.create_task(fetch(peer, "t", 0, max_wait_ms=15_000))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await put(other, "t", b"x")
        assert records_of(await waiting) == [(0, b"x")]
        assert time.monotonic() - began < 5


@looped
async def test_offsets_out_of_range(tmp_path: Path) -> None:
    """D5: after the end; the end itself is none."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        await put(peer, "t", b"a", b"b")
        part = await fetch(peer, "t", 3)
        assert (part.error_code, part.high_watermark) == (Code.OFFSET_OUT_OF_RANGE, -1)
        part = await fetch(peer, "t", 2, max_wait_ms=1)
        assert (part.error_code, part.high_watermark, records_of(part)) == (0, 2, [])


@looped
async def test_records_are_deleted(tmp_path: Path) -> None:
    """D7: up to an offset, up to the end, never beyond it."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        for each in range(4):
            await put(peer, "t", b"%d" % each)

        async def delete(before: int) -> tuple[int, int]:
            response = await peer.ask(DeleteRecordsRequest(timeout=5000, topics=[DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(
                    partition_index=0, offset=before)])]), 2)
            part = response.topics[0].partitions[0]
            return part.error_code, part.low_watermark

        assert await delete(2) == (0, 2)
        assert await read_all(peer, "t", start=2) == [(2, b"2"), (3, b"3")]
        assert (await fetch(peer, "t", 1)).error_code == Code.OFFSET_OUT_OF_RANGE
        assert (await list_offset(peer, "t", -2)).offset == 2
        assert await delete(1) == (0, 2)
        assert (await delete(9))[0] == Code.OFFSET_OUT_OF_RANGE
        assert await delete(-1) == (0, 4)
        assert (await put(peer, "t", b"x")).log_start_offset == 4


@looped
async def test_a_topic_is_deleted_and_its_name_is_used_again(tmp_path: Path) -> None:
    """D7: the new topic has other records; the control plane forgets the old one."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node, "t", 2)
        await put(peer, "t", b"old")
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        diskless = node.node.diskless
        assert diskless is not None
        await until(lambda: not len(diskless.partitions))
        await until_true(lambda: _is_empty(node))
        assert (await put(peer, "t", b"x")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        await create(node, "t")
        assert (await put(peer, "t", b"new")).base_offset == 0
        assert await read_all(peer, "t") == [(0, b"new")]


async def _is_empty(node: NodeHere) -> bool:
    assert node.node.diskless is not None
    return not await node.node.diskless.plane.topics()


@looped
async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """D2, K10: records, offsets, producers; what was buffered at the stop is answered."""
    node = diskless_node(tmp_path, diskless_flush_interval_ms="60000")
    await node.__aenter__()
    async with node.connect() as peer:
        await create(node, "t", 2)
        sending = asyncio.create_task(put(
            peer, "t", b"a", producer_id=3, producer_epoch=0, base_sequence=0))
        diskless = node.node.diskless
        assert diskless is not None
        await until(lambda: diskless.writer.stats.buffered_now)
        stopping = asyncio.create_task(node.node.stop())
        part = await sending
        assert (part.error_code, part.base_offset) == (0, 0)
        await stopping
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        assert await read_all(peer, "t") == [(0, b"a")]
        part = await put(peer, "t", b"a", producer_id=3, producer_epoch=0, base_sequence=0)
        assert (part.error_code, part.base_offset) == (0, 0)
        assert (await put(peer, "t", b"b", producer_id=3, producer_epoch=0,
                          base_sequence=1)).base_offset == 1
        assert await read_all(peer, "t") == [(0, b"a"), (1, b"b")]


@looped
async def test_batches_that_come_before_the_log_is_known_wait(tmp_path: Path) -> None:
    """D1: a client may produce as soon as the topic is created."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await node.create("t", diskless_enable="true")
        found = partition(node)
        assert found is not None
        assert not found.is_known
        answers = await asyncio.gather(put(peer, "t", b"a"))
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0)]


@looped
async def test_clients_see_one_replica_and_epoch_0(tmp_path: Path) -> None:
    """D1: in Metadata; the log is in no directory; epoch 0 ends at the high watermark."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node, "t")
        await put(peer, "t", b"a")
        metadata = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        (shown,) = metadata.topics[0].partitions
        own = node.node.broker.node_id
        assert (shown.error_code, shown.leader_id, shown.leader_epoch, shown.replica_nodes,
                shown.isr_nodes, shown.offline_replicas) == (0, own, 0, [own], [own], [])
        dirs = await peer.ask(DescribeLogDirsRequest(topics=None), 4)
        assert [topic.name for topic in dirs.results[0].topics] == []
        ends = await peer.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(
            topic="t", partitions=[OffsetForLeaderPartition(
                partition=0, current_leader_epoch=0, leader_epoch=0)])]), 4)
        (end,) = ends.topics[0].partitions
        assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 1)


@looped
async def test_transactions_are_refused(tmp_path: Path) -> None:
    """D1: with an error, never ignored."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await create(node)
        request = produce("t", batch_of(
            b"x", attributes=TRANSACTIONAL_BIT, producer_id=7, producer_epoch=0, base_sequence=0),
            acks=-1)
        request.transactional_id = "tx"
        response = await peer.ask(request, 9)
        (part,) = response.responses[0].partition_responses
        assert part.error_code == Code.INVALID_TXN_STATE
        assert await read_all(peer, "t") == []


@looped
async def test_requests_wait_while_too_much_is_on_its_way(tmp_path: Path) -> None:
    """D6, broker.serving.D1: memory is bounded; a client is slowed down without an error."""
    async with diskless_node(
            tmp_path, diskless_buffer_bytes=str(1 << 20), diskless_flush_bytes=str(256 << 10),
            diskless_upload_threads="1") as node, node.connect() as peer:
        await create(node, max_message_bytes=str(1 << 20))
        for _ in range(40):
            peer.send(produce("t", batch_of(b"x" * (200 << 10)), acks=-1), 9)
        diskless = node.node.diskless
        assert diskless is not None
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, diskless.writer.stats.buffered_now)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        answers: list[Any] = [await peer.answer() for _ in range(40)]
        watching.cancel()
        parts = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [part.error_code for part in parts] == [0] * 40
        assert [part.base_offset for part in parts] == list(range(40))
        assert (1 << 20) < most <= (1 << 20) + (256 << 10)
