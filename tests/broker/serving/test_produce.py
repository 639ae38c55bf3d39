"""Produce: what is appended, what is refused, and the order of the responses."""

import errno
import struct
import time
from pathlib import Path

import pytest

from quipu.model.errors import Code
from quipu.storage.segments import timestamps
from quipu.wire.messages.k00_produce import ProduceResponse
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from quipu.wire.record_batch import Record, encode_batch
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.looped import looped


async def outcome(peer: Peer, *args: object, version: int = 9, **kwargs: object) -> list[int]:
    """The error codes of one request, by partition."""
    request = produce(*args, **kwargs)  # type: ignore[arg-type]
    response: ProduceResponse = await peer.ask(request, version)
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


@looped
async def test_every_version_is_served(tmp_path: Path) -> None:
    """K2, K12: v3 to v13; offsets go up by one per record, and from v13 topics are ids."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        topic_id = await node.create("orders")
        for count, version in enumerate(range(3, 14)):
            topic = topic_id if version >= 13 else "orders"
            response = await peer.ask(produce(topic, batch_of(b"a", b"b")), version)
            (part,) = response.responses[0].partition_responses
            assert (part.error_code, part.base_offset) == (0, 2 * count)
            assert part.log_append_time == -1
            assert part.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [0, 1, 2])
@looped
async def test_versions_before_3_are_refused_with_an_answer(tmp_path: Path, version: int) -> None:
    """K12: they are advertised for the sake of old clients, and get UNSUPPORTED_VERSION."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        body = struct.pack(">hii", 1, 1000, 1) + b"\0\x01t" + struct.pack(">iii", 1, 0, 3) + b"abc"
        head = struct.pack(">hhih", 0, version, 77, -1)
        peer.send_bytes(struct.pack(">i", len(head + body)) + head + body)
        want = struct.pack(">ii", 77, 1) + b"\0\x01t" + struct.pack(
            ">iihq", 1, 0, Code.UNSUPPORTED_VERSION, -1)
        want += struct.pack(">q", -1) if version >= 2 else b""
        want += struct.pack(">i", 0) if version >= 1 else b""
        assert await peer.frame() == want


@looped
async def test_bad_batches_are_refused_one_by_one(tmp_path: Path) -> None:
    """K2, K8: each partition gets its own verdict, and only good batches are stored."""
    good = batch_of(b"good")
    flipped = batch_of(b"flipped")
    flipped[-1] ^= 1
    two = batch_of(b"one") + batch_of(b"two")
    control = batch_of(b"control", attributes=0x20)
    big = batch_of(b"x" * 2_000_000)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 8)
        codes = await outcome(peer, "t", good, flipped, two, control, big, None, b"short", good)
        assert codes == [
            0, Code.CORRUPT_MESSAGE, Code.INVALID_RECORD, Code.INVALID_RECORD,
            Code.MESSAGE_TOO_LARGE, Code.INVALID_RECORD, Code.INVALID_RECORD, 0]
        ends = [partition.log.end_offset for partition in node.node.broker.partitions.all()]
        assert ends == [1, 0, 0, 0, 0, 0, 0, 1]


@looped
async def test_the_reason_is_said(tmp_path: Path) -> None:
    """K2: from v8 on an error comes with words."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", max_message_bytes="1000")
        response = await peer.ask(produce("t", batch_of(b"x" * 2000)), 9)
        (part,) = response.responses[0].partition_responses
        assert part.error_code == Code.MESSAGE_TOO_LARGE
        assert "max.message.bytes = 1000" in part.error_message


@looped
async def test_unknown_topics_and_wrong_acks(tmp_path: Path) -> None:
    """K2, V12: acks are 0, 1 or -1; a partition must exist."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        batch = batch_of(b"x")
        assert await outcome(peer, "nope", batch) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert await outcome(peer, "t", batch, batch) == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert await outcome(peer, b"x" * 16, batch, version=13) == [Code.UNKNOWN_TOPIC_ID]
        assert await outcome(peer, "t", batch, acks=2) == [Code.INVALID_REQUIRED_ACKS]
        assert await outcome(peer, "t", batch, acks=-1) == [0]


@looped
async def test_more_replicas_than_there_are_cannot_be_asked_for(tmp_path: Path) -> None:
    """K5, V12: as in Kafka, min.insync.replicas counts up to the number of replicas."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", min_insync_replicas="2")
        for offset, acks in enumerate((-1, 1)):
            assert await outcome(peer, "t", batch_of(b"x"), acks=acks) == [0]
            assert node.node.broker.partitions.find("t", 0).log.end_offset == offset + 1


@looped
async def test_acks_0_is_not_answered(tmp_path: Path) -> None:
    """V12: the next response is that of the next request."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        peer.send(produce("t", batch_of(b"x"), acks=0), 9)
        peer._asked.clear()
        response = await peer.ask(ApiVersionsRequest(), 0)
        assert response.error_code == 0
        assert node.node.broker.partitions.find("t", 0).log.end_offset == 1


@looped
async def test_a_refusal_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    """V12: how else would the client know."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        peer.send(produce("nope", batch_of(b"x"), acks=0), 9)
        assert await peer.closed()


@looped
async def test_a_transaction_with_acks_0_is_not_answered_either(tmp_path: Path) -> None:
    """V12: a response that the client does not expect would be taken for another request's."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        batch = batch_of(b"x", attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0)
        request = produce("t", batch, acks=0)
        request.transactional_id = "payments"
        peer.send(request, 9)
        assert await peer.closed()


@looped
async def test_a_transactional_id_alone_does_not_matter(tmp_path: Path) -> None:
    """K2: as in Kafka, only batches that are marked as transactional belong to a transaction."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        request = produce("t", batch_of(b"x"))
        request.transactional_id = "payments"
        (part,) = (await peer.ask(request, 9)).responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, 0)


@pytest.mark.parametrize("version", [3, 6, 7, 13])
@looped
async def test_zstd_needs_version_7(tmp_path: Path, version: int) -> None:
    """K2: a client of an earlier version could not read back what it wrote."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        topic_id = await node.create("t", 2)
        request = produce("t" if version < 13 else topic_id,
                          batch_of(b"z", compression=4), batch_of(b"plain"))
        parts = (await peer.ask(request, version)).responses[0].partition_responses
        expected = Code.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else Code.NONE
        assert [part.error_code for part in parts] == [expected, Code.NONE]


@looped
async def test_of_two_batches_for_a_partition_the_last_counts(tmp_path: Path) -> None:
    """K2: as in Kafka, whose response has one result for a partition, too."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        request = produce("t", batch_of(b"first"), batch_of(b"second", b"third"))
        for part in request.topic_data[0].partition_data:
            part.index = 0
        (part,) = (await peer.ask(request, 9)).responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, 0)
        (partition,) = node.node.broker.partitions.all()
        assert partition.log.end_offset == 2


@looped
async def test_a_refusal_names_records_and_the_start_of_the_log(tmp_path: Path) -> None:
    """K2: KIP-467: the records whose times are refused; and KIP-107: where the log begins."""
    batch = encode_batch([Record(b"k", b"v", timestamp=stamp) for stamp in (-1, 1, 2)])
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_timestamp_before_max_ms="1000")
        (part,) = (await peer.ask(produce("t", batch), 9)).responses[0].partition_responses
        assert part.error_code == Code.INVALID_TIMESTAMP
        assert [each.batch_index for each in part.record_errors] == [1, 2]
        assert part.log_start_offset == 0


@looped
async def test_wrong_acks_come_after_an_unknown_topic_and_a_bad_batch(tmp_path: Path) -> None:
    """K2: the same order of checks as Kafka's."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        codes = await outcome(
            peer, "t", batch_of(b"a"), batch_of(b"a") * 2, batch_of(b"a"), acks=2)
        assert codes == [Code.INVALID_REQUIRED_ACKS, Code.INVALID_RECORD,
                         Code.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("flush", ["1", "9223372036854775807"], ids=["flushed", "not flushed"])
@looped
async def test_pipelined_requests_get_responses_in_order(tmp_path: Path, flush: str) -> None:
    """K2: broker.serving.Q1; many requests ahead of their responses; one connection's offsets only
    go up.
    """
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", flush_messages=flush)
        count = 500
        for index in range(count):
            peer.send(produce("t", batch_of(str(index).encode())), 3 + index % 10)
            if index % 7 == 0:
                peer.send(ApiVersionsRequest(), 0)
        for index in range(count):
            response = await peer.answer()
            assert isinstance(response, ProduceResponse)
            assert response.responses[0].partition_responses[0].base_offset == index
            if index % 7 == 0:
                await peer.answer()


@looped
async def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    """K2: message.timestamp.type=LogAppendTime."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_timestamp_type="LogAppendTime")
        before = time.time() * 1000
        response = await peer.ask(produce("t", batch_of(b"x", timestamp=5)), 9)
        (part,) = response.responses[0].partition_responses
        assert before - 1 <= part.log_append_time <= time.time() * 1000
        log = node.node.broker.partitions.find("t", 0).log
        newest = timestamps.run(log.search_newest())
        assert newest is not None
        assert newest.timestamp == part.log_append_time


@looped
async def test_timestamps_must_be_near(tmp_path: Path) -> None:
    """K2: message.timestamp.before.max.ms and after.max.ms."""
    now = int(time.time() * 1000)
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", message_timestamp_before_max_ms="60000")
        assert await outcome(peer, "t", batch_of(b"x", timestamp=now + 7_200_000)) == [
            Code.INVALID_TIMESTAMP]
        assert await outcome(peer, "t", batch_of(b"x", timestamp=now - 120_000)) == [
            Code.INVALID_TIMESTAMP]
        assert await outcome(peer, "t", batch_of(b"x", timestamp=now - 1000)) == [0]


@looped
async def test_a_retried_batch_is_stored_once(tmp_path: Path) -> None:
    """K2: an idempotent producer's retry gets the first response again."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        def send(sequence: int) -> bytearray:
            return batch_of(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=sequence)

        first = await peer.ask(produce("t", send(0)), 9)
        again = await peer.ask(produce("t", send(0)), 9)
        assert first == again
        assert await outcome(peer, "t", send(6)) == [Code.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert node.node.broker.partitions.find("t", 0).log.end_offset == 2


@looped
async def test_settings_of_a_topic_take_effect_at_once(tmp_path: Path) -> None:
    """K5: a changed max.message.bytes governs the next batch."""
    from quipu.wire.messages.k44_incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        assert await outcome(peer, "t", batch_of(b"x" * 5000)) == [0]
        change = AlterableConfig(name="max.message.bytes", config_operation=0, value="1000")
        await peer.ask(IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(
            resource_type=2, resource_name="t", configs=[change])]), 1)
        assert await outcome(peer, "t", batch_of(b"x" * 5000)) == [Code.MESSAGE_TOO_LARGE]


@looped
async def test_a_full_disk_is_told_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """K2, K9: a refused batch leaves no trace, the operator hears of it, and later ones go well."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        assert await outcome(peer, "t", batch_of(b"before")) == [0]

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("quipu.runtime.disks.disk.os.writev", full)
            for _ in range(3):
                assert await outcome(peer, "t", batch_of(b"x")) == [Code.KAFKA_STORAGE_ERROR]
        assert await outcome(peer, "t", batch_of(b"after")) == [0]
        assert node.node.broker.partitions.find("t", 0).log.end_offset == 2
        lines = [record for record in caplog.records if "a batch was refused" in record.message]
        assert len(lines) == 1
