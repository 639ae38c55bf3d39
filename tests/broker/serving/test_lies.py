"""Produce: batches with a right checksum whose records lie, over real sockets."""

import asyncio
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from quipu.broker.partitions import heavy_batches
from quipu.broker.serving import record_checks
from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.record_batch import HEADER_SIZE, decode_records, parse_header
from quipu.wire.records import RecordsSeen
from tests.harness import lies
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.harness.lies import CODECS, COUNT, lying_batches, sealed, true_batch, varint
from tests.looped import looped

PACKED = CODECS[1:]
LARGE = 20_000  # records of a batch that is looked at in a thread


async def part_of(peer: Peer, *batches: bytes | bytearray, version: int = 9, acks: int = 1,
                  topic: str = "t") -> list:
    response = await peer.ask(produce(topic, *batches, acks=acks), version)
    return [part for each in response.responses for part in each.partition_responses]


async def offsets(peer: Peer, partition: int = 0) -> list[int]:
    """Every offset that a fetch from the start gives, with CRCs looked at."""
    found: list[int] = []
    while True:
        request = FetchRequest(max_wait=0, min_bytes=0, max_bytes=64 << 20, topics=[FetchTopic(
            topic="t", partitions=[FetchPartition(
                partition=partition, fetch_offset=found[-1] + 1 if found else 0,
                partition_max_bytes=64 << 20)])])
        part = (await peer.ask(request, 12)).responses[0].partitions[0]
        assert part.error_code == 0
        data = memoryview(part.records or b"")
        if not data:
            return found
        while data:
            header = parse_header(data)
            found += [record.offset
                      for record in decode_records(data[: header.size], size_max=64 << 20)]
            data = data[header.size :]


@pytest.mark.parametrize("codec", CODECS)
@looped
async def test_no_lie_is_stored_and_those_beside_it_are(tmp_path: Path, codec: int) -> None:
    """K2, K8, T5: broker.partitions.P1; single requests and partitions of one; what is behind is
    read without a hole.
    """
    batches = lying_batches(codec)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 3)
        for number, (name, lie) in enumerate(batches.items(), 1):
            (part,) = await part_of(peer, lie)
            assert (part.error_code, part.base_offset) == (Code.INVALID_RECORD, -1), name
            assert part.error_message, name
            parts = await part_of(peer, true_batch(codec), lie, true_batch(codec))
            assert [each.error_code for each in parts] == [0, Code.INVALID_RECORD, 0], name
            assert [each.base_offset for each in parts] == [
                (number - 1) * COUNT, -1, (number - 1) * COUNT], name
        every = list(range(len(batches) * COUNT))
        assert await offsets(peer) == await offsets(peer, 2) == every
        assert await offsets(peer, 1) == []
        assert node.node.stats.request_errors[0, Code.INVALID_RECORD] == 2 * len(batches)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        assert await offsets(peer) == every
        (part,) = await part_of(peer, true_batch(codec))
        assert part.base_offset == len(every)


@pytest.mark.parametrize("version", range(3, 13))
@looped
async def test_every_version_says_what_it_can(tmp_path: Path, version: int) -> None:
    """K2, KIP-467: from v8 on the records are named, and the batch's error has words."""
    lie = lying_batches(0)["an offset twice"]
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        for parts in (await part_of(peer, lie, version=version),
                      (await part_of(peer, true_batch(), lie, version=version))[1:]):
            (part,) = parts
            assert part.error_code == Code.INVALID_RECORD
            if version >= 8:
                (error,) = part.record_errors
                assert error.batch_index == 1
                assert error.batch_index_error_message == "its offset delta is not 1"
                assert "record 1 of 4" in part.error_message


@looped
async def test_a_lie_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    """V12, K8: small and large ones alike: how else would the client know."""
    large = sealed(lies.records(LARGE), count=LARGE + 1, codec=4)
    async with NodeHere(tmp_path) as node:
        await node.create("t")
        for lie in (lying_batches(0)["garbage"], large):
            async with node.connect() as peer:
                peer.send(produce("t", lie, acks=0), 9)
                assert await peer.closed()
        assert node.node.stats.batches_checked_in_threads == 1
        assert node.node.broker.partitions.find("t", 0).log.end_offset == 0


@looped
async def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    """K2: as Kafka refuses them, record by record; other topics take them."""
    keyless = sealed(b"".join(lies.record(index, **({"key": varint(-1)} if index % 2 else {}))
                              for index in range(COUNT)), codec=3)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await node.create("compacted", cleanup_policy="compact")
        await node.create("both", cleanup_policy="delete,compact")
        assert [part.error_code for part in await part_of(peer, keyless)] == [0]
        for topic in ("compacted", "both"):
            (part,) = await part_of(peer, keyless, topic=topic)
            assert part.error_code == Code.INVALID_RECORD
            assert [error.batch_index for error in part.record_errors] == [1, 3]
            assert "cleanup.policy" in part.error_message
            assert [part.error_code for part in await part_of(
                peer, true_batch(), topic=topic)] == [0]
            assert [part.error_code for part in await part_of(
                peer, batch_of(b"no key"), topic=topic)] == [Code.INVALID_RECORD]


@pytest.mark.parametrize("codec", PACKED)
@looped
async def test_a_bomb_is_refused(tmp_path: Path, codec: int) -> None:
    """K8: more than max.decompressed.message.bytes; Java's producer splits such a batch."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", max_decompressed_message_bytes=str(1 << 20))
        (part,) = await part_of(peer, sealed(b"", codec=codec, packed=lies.bomb(codec, 16 << 20)))
        assert part.error_code == Code.MESSAGE_TOO_LARGE
        assert "max.decompressed.message.bytes" in part.error_message
        (part,) = await part_of(peer, true_batch(codec, 10_000))
        assert part.error_code == 0


@pytest.mark.parametrize("codec", PACKED)
@looped
async def test_large_batches_keep_their_place(tmp_path: Path, codec: int) -> None:
    """K2: broker.serving.Q2, broker.serving.W1; those looked at in a thread and those behind them
    are appended in the order sent.
    """
    async with NodeHere(tmp_path) as node, node.connect() as peer, node.connect() as other:
        await node.create("t", 2)
        counts = [1, LARGE, 2, LARGE + 1, 3, 4, LARGE + 2] * 3
        for number, count in enumerate(counts):
            batch = true_batch(codec if count > 10 else 0, count)
            peer.send(produce("t", batch) if number % 2 else produce("t", batch, true_batch()), 9)
            if number == 3:  # someone else is served meanwhile
                assert [part.error_code for part in await part_of(other, true_batch())] == [0]
        want = 0
        mine = []
        for count in counts:
            response = await peer.answer()
            part = response.responses[0].partition_responses[0]
            assert part.error_code == 0
            mine.append(part.base_offset)
            want += count
        assert mine == sorted(mine)
        assert node.node.stats.batches_checked_in_threads == 9
        assert node.node.stats.checking_bytes == 0
        assert await offsets(peer) == list(range(want + COUNT))


@looped
async def test_idempotent_batches_are_in_sequence_behind_large_ones(tmp_path: Path) -> None:
    """K2: their sequences would show if one had overtaken another; a resend is recognised."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        sequence, sent = 0, []
        for count in (LARGE, 1, LARGE, 2):
            sent.append(true_batch(4 if count > 10 else 0, count, producer=(7, 0, sequence)))
            sequence += count
        for batch in [*sent, sent[2], sent[3]]:
            peer.send(produce("t", batch), 9)
        parts = [(await peer.answer()).responses[0].partition_responses[0] for _ in range(6)]
        assert [part.error_code for part in parts] == [0] * 6
        assert parts[4].base_offset == parts[2].base_offset
        assert node.node.stats.duplicate_batches == 2


@looped
async def test_a_client_that_leaves_while_its_batch_is_looked_at(tmp_path: Path) -> None:
    """K8: nothing is left behind, and others go on."""
    async with NodeHere(tmp_path) as node:
        await node.create("t")
        for _ in range(20):
            async with node.connect() as peer:
                peer.send(produce("t", true_batch(1, LARGE)), 9)
                await asyncio.sleep(0)
        async with node.connect() as peer:
            assert [part.error_code for part in await part_of(peer, true_batch())] == [0]
            for _ in range(200):
                if node.node.stats.checking_bytes == 0:
                    break
                await asyncio.sleep(0.05)
            assert node.node.stats.checking_bytes == 0
            found = await offsets(peer)
            assert found == list(range(len(found)))


@pytest.mark.parametrize("acks", [0, 1])
@looped
async def test_nobody_works_for_a_client_that_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """K8: of many batches that take long, few are checked; unless no response was wanted."""
    count = 40
    slowly = record_checks.check_records

    def slow(*words: Any, **more: Any) -> RecordsSeen:
        time.sleep(0.02)
        return slowly(*words, **more)

    monkeypatch.setattr(record_checks, "check_records", slow)
    async with NodeHere(tmp_path) as node:
        await node.create("t", count)
        async with node.connect() as peer:
            peer.send(produce("t", *[true_batch(1, LARGE)] * count, acks=acks), 9)
            while node.node.stats.batches_checked_in_threads == 0:
                await asyncio.sleep(0.001)
        while node.node.stats.checking_bytes:
            await asyncio.sleep(0.01)
        checked = node.node.stats.batches_checked_in_threads
        assert checked == count if acks == 0 else checked < count // 2
        assert node.node.stats.produced_batches == (count if acks == 0 else 0)


@looped
async def test_a_request_has_threads_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: broker.serving.W4; what is not reached by then is put off with a retriable error."""
    slowly = record_checks.check_records

    def slow(*words: Any, **more: Any) -> RecordsSeen:
        time.sleep(0.11)
        return slowly(*words, **more)

    monkeypatch.setattr(record_checks, "check_records", slow)
    here = NodeHere(tmp_path, log_message_records_check_max_ms="100")
    async with here as node, node.connect() as peer:
        await node.create("t", 3)
        batch = true_batch(4, LARGE)
        first, *others = await part_of(peer, batch, batch, batch)
        assert first.error_code == 0
        assert {part.error_code for part in others} == {Code.REQUEST_TIMED_OUT}
        assert "log.message.records.check.max.ms" in others[0].error_message
        assert await offsets(peer, 1) == []


@looped
async def test_a_batch_that_is_put_off_is_no_gap(tmp_path: Path) -> None:
    """K2: those that were sent behind it are retried too, and not refused as out of order."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        sent = [true_batch(4, LARGE, producer=(7, 0, 0)),
                true_batch(4, LARGE, producer=(7, 0, LARGE)),
                true_batch(0, 1, producer=(7, 0, 2 * LARGE))]
        (part,) = await part_of(peer, sent[0])
        assert part.error_code == 0
        node.node.stats.checking_bytes = node.node.settings.queued_max_request_bytes
        codes = [(await part_of(peer, batch))[0].error_code for batch in sent[1:]]
        assert codes == [Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER]
        node.node.stats.checking_bytes = 0
        codes = [(await part_of(peer, batch))[0].error_code for batch in sent[1:]]
        assert codes == [0, 0]
        assert await offsets(peer) == list(range(2 * LARGE + 1))


@looped
async def test_copies_that_wait_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: broker.serving.W2, broker.serving.L4; beyond queued.max.request.bytes a batch is put off
    with an error that is retried.
    """
    monkeypatch.setattr(heavy_batches, "LOOP_SIZE_MAX", 1)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        batch = true_batch(4, LARGE)
        node.node.stats.checking_bytes = node.node.settings.queued_max_request_bytes
        (part,) = await part_of(peer, batch)
        assert part.error_code == Code.REQUEST_TIMED_OUT
        assert "queued.max.request.bytes" in part.error_message
        assert [part.error_code for part in await part_of(peer, true_batch())] == [0]
        node.node.stats.checking_bytes = 0
        assert [part.error_code for part in await part_of(peer, batch)] == [0]


@pytest.mark.parametrize(("level", "stored"), [
    ("all", [False, False]), ("uncompressed", [False, True]), ("none", [True, True])])
@looped
async def test_the_check_can_be_turned_off(
    tmp_path: Path, level: str, stored: list[bool]
) -> None:
    """K2: message.records.check; what the header alone shows is refused all the same."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_records_check=level)
        for codec, taken in zip((0, 4), stored, strict=True):
            (part,) = await part_of(peer, lying_batches(codec)["an offset twice"])
            assert (part.error_code == 0) == taken
            for name in ("two billion records", "more offsets than records", "high attributes"):
                (part,) = await part_of(peer, lying_batches(codec)[name])
                assert part.error_code == Code.INVALID_RECORD, name
        assert node.node.broker.partitions.find("t", 0).log.end_offset == COUNT * sum(stored)


@pytest.mark.parametrize("codec", CODECS)
@looped
async def test_a_wrong_largest_timestamp_is_set_right(tmp_path: Path, codec: int) -> None:
    """K2, T5: as Kafka does; look-ups by time find what a fetch returns."""
    body = b"".join(lies.record(index, timestamp=varint(10 * index)) for index in range(COUNT))
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_timestamp_after_max_ms=str(2**63 - 1))
        for claimed in (-1, 5, 10**15):
            (part,) = await part_of(
                peer, sealed(body, codec=codec, timestamp=1000, max_timestamp=claimed))
            assert part.error_code == 0
        log = node.node.broker.partitions.find("t", 0).log
        (stored,) = {batch.header.max_timestamp for batch in log.read_stored()
                     if batch.header.batch_type == 1}  # `read_stored` looks at checksums
        assert stored == 1030
        for timestamp, want in ((1015, (2, 1020)), (-3, (3, 1030)), (1031, (-1, -1))):
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[
                ListOffsetsPartition(partition_index=0, timestamp=timestamp)])])
            (found,) = (await peer.ask(request, 8)).topics[0].partitions
            assert (found.offset, found.timestamp) == want


@looped
async def test_every_record_is_as_new_as_the_topic_asks(tmp_path: Path) -> None:
    """K2: message.timestamp.before.max.ms, which a header's base timestamp alone does not show."""
    body = b"".join(lies.record(index, timestamp=varint(-10**9 if index == 2 else 0))
                    for index in range(COUNT))
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_timestamp_before_max_ms=str(60_000))
        for codec in (0, 4):
            (part,) = await part_of(peer, sealed(body, codec=codec))
            assert part.error_code == Code.INVALID_TIMESTAMP
            assert "message.timestamp.before.max.ms" in part.error_message
            assert [part.error_code for part in await part_of(peer, true_batch(codec))] == [0]


def test_the_layout_that_lies_are_written_from() -> None:
    """K2: or else the lies would be refused for another reason."""
    batch = true_batch()
    assert struct.unpack_from(">i", batch, 57) == (COUNT,)
    found = list(decode_records(memoryview(batch), size_max=1 << 20))
    assert [(record.key, record.value, record.headers) for record in found] == [
        (b"key", b"value", (("h", b"xy"),))] * COUNT
    assert len(batch) > HEADER_SIZE
