"""compression.type: batches are stored with the topic's codec, whatever the producer used."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker.serving import record_checks
from quipu.broker.serving.context import Broker
from quipu.model.errors import Code
from quipu.wire.compression import Compression
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.record_batch import (
    Record,
    TimestampType,
    decode_records,
    encode_batch,
    parse_header,
)
from tests.harness import lies
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.harness.lies import CODECS, lying_batches, sealed
from tests.looped import looped

NAMES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
DISKLESS = {"diskless_storage_system_enable": "true", "diskless_flush_interval_ms": "5"}


async def stored(peer: Peer, topic: str = "t", partition: int = 0) -> list[bytes]:
    """All batches of a partition, as a consumer gets them."""
    found: list[bytes] = []
    offset = 0
    while True:
        request = FetchRequest(max_wait=0, min_bytes=0, max_bytes=64 << 20, topics=[FetchTopic(
            topic=topic, partitions=[FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=64 << 20)])])
        part = (await peer.ask(request, 12)).responses[0].partitions[0]
        assert part.error_code == 0
        data = memoryview(part.records or b"")
        if not data:
            return found
        while data:
            header = parse_header(data)
            found.append(bytes(data[: header.size]))
            offset = header.last_offset + 1
            data = data[header.size :]


async def answers(peer: Peer, *batches: bytes | bytearray, topic: str = "t") -> list:
    response = await peer.ask(produce(topic, *batches), 9)
    return [part for each in response.responses for part in each.partition_responses]


@pytest.mark.parametrize("kind", ["classic", "diskless"])
@pytest.mark.parametrize(("name", "codec"), NAMES.items())
@looped
async def test_every_codec_becomes_the_topic_s(
    tmp_path: Path, name: str, codec: int, kind: str
) -> None:
    """K2, K5: offsets, sequences and timestamps stay right; equal codecs are not touched."""
    async with NodeHere(tmp_path, **DISKLESS) as node, node.connect() as peer:
        await node.create("t", compression_type=name, **(
            {"diskless_enable": "true"} if kind == "diskless" else {}))
        for sequence, source in enumerate(CODECS):
            batch = sealed(lies.records(), codec=source, producer=(5, 0, sequence * lies.COUNT))
            for repeat in (False, True):  # a retry of an idempotent producer is recognised
                (part,) = await answers(peer, batch)
                assert part.error_code == 0, part.error_message
                assert part.base_offset == sequence * lies.COUNT, (source, repeat)
            same = parse_header(memoryview(batch))
            kept = (await stored(peer))[-1]
            header = parse_header(memoryview(kept))
            assert header.compression == codec
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
                5, 0, sequence * lies.COUNT)
            assert (header.base_timestamp, header.max_timestamp) == (
                same.base_timestamp, same.max_timestamp)
            if source == codec:
                assert header.crc == same.crc, "as it was sent"
        records = [record for each in await stored(peer)
                   for record in decode_records(memoryview(each), size_max=1 << 20)]
        assert [record.offset for record in records] == list(range(len(CODECS) * lies.COUNT))
        assert {(record.key, record.value) for record in records} == {(b"key", b"value")}
        assert node.node.stats.batches_recompressed == 2 * (len(CODECS) - 1)
        assert node.node.stats.checking_bytes == 0, "broker.serving.W5"


@looped
async def test_append_time_is_set_on_what_is_stored(tmp_path: Path) -> None:
    """K2: LogAppendTime and compression.type together."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", compression_type="lz4", message_timestamp_type="LogAppendTime")
        (part,) = await answers(peer, sealed(lies.records(), codec=1, timestamp=5))
        (batch,) = await stored(peer)
        header = parse_header(memoryview(batch))
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.compression == Compression.LZ4
        assert header.max_timestamp == part.log_append_time > 5


@looped
async def test_batches_of_a_connection_keep_their_order(tmp_path: Path) -> None:
    """K2, V12: small ones do not overtake a large one that threads compress."""
    large = encode_batch([Record(key=b"k", value=bytes([index % 7]) * 100)
                          for index in range(20_000)], compression=Compression.GZIP)
    async with NodeHere(tmp_path, message_max_bytes="10000000") as node, node.connect() as peer:
        await node.create("t", compression_type="zstd")
        await node.create("other")
        for batch in (large, batch_of(b"a"), large, batch_of(b"b")):
            peer.send(produce("t", batch), 9)
            peer.send(produce("other", batch_of(b"x")), 9)
        bases = [part.base_offset for _ in range(8)
                 for each in (await peer.answer()).responses  # type: ignore[attr-defined]
                 for part in each.partition_responses]
        assert bases[::2] == [0, 20_000, 20_001, 40_001]
        assert bases[1::2] == [0, 1, 2, 3]
        assert {parse_header(memoryview(each)).compression for each in await stored(peer)} == {4}


@looped
async def test_a_request_with_many_batches_is_compressed_again(tmp_path: Path) -> None:
    """K2, broker.serving.L1: requests that take turns do the same, batch by batch."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 200, compression_type="snappy")
        parts = await answers(peer, *[bytearray(batch_of(b"v")) for _ in range(200)])
        assert {part.error_code for part in parts} == {0}
        for partition in (0, 99, 199):
            (batch,) = await stored(peer, partition=partition)
            assert parse_header(memoryview(batch)).compression == Compression.SNAPPY
        assert node.node.stats.checking_bytes == 0


@pytest.mark.parametrize("codec", CODECS)
@looped
async def test_lies_are_still_refused(tmp_path: Path, codec: int) -> None:
    """K8: broker.partitions.P1: a batch is checked before it is compressed again."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", compression_type="zstd" if codec != Compression.ZSTD else "gzip")
        for name, lie in lying_batches(codec).items():
            (part,) = await answers(peer, lie)
            assert part.error_code == Code.INVALID_RECORD, name
        assert await stored(peer) == []


@looped
async def test_sizes_are_bounded_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: broker.serving.W5: neither a bomb nor many batches at once fill the memory of a node."""
    bomb = encode_batch([Record(key=None, value=bytes(8 << 20))], compression=Compression.ZSTD)
    async with NodeHere(tmp_path, message_decompressed_max_bytes="1048576") as node:
        await node.create("t", compression_type="uncompressed")
        async with node.connect() as peer:
            (part,) = await answers(peer, bomb)
            assert part.error_code == Code.MESSAGE_TOO_LARGE
            assert "max.decompressed.message.bytes" in part.error_message
            (part,) = await answers(peer, encode_batch(
                [Record(key=None, value=bytes(1 << 19)) for _ in range(2)],
                compression=Compression.ZSTD))
            assert part.error_code == Code.MESSAGE_TOO_LARGE
            reserve, sizes = record_checks.reserve, []

            def reserve_once(broker: Broker, size: int) -> bool:
                sizes.append(size)
                return len(sizes) == 1 and reserve(broker, size)

            monkeypatch.setattr(record_checks, "reserve", reserve_once)
            (part,) = await answers(peer, sealed(lies.records(), codec=1))
            assert part.error_code == Code.REQUEST_TIMED_OUT, "a client sends it again"
            assert len(sizes) == 2, "its request, and then the batch that was made of it"
        assert node.node.stats.checking_bytes == 0


@looped
async def test_the_broker_s_default_and_a_change_take_effect_at_once(tmp_path: Path) -> None:
    """K5: topics inherit compression.type; `producer` again stores what is sent."""
    async with NodeHere(tmp_path, compression_type="gzip") as node, node.connect() as peer:
        await node.create("t")
        codecs = []
        for name in (None, "lz4", "producer"):
            if name is not None:
                await node.alter("t", compression_type=name)
                await asyncio.sleep(0.1)
            (part,) = await answers(peer, sealed(lies.records(), codec=2))
            assert part.error_code == 0
            codecs.append(parse_header(memoryview((await stored(peer))[-1])).compression)
        assert codecs == [Compression.GZIP, Compression.LZ4, Compression.SNAPPY]


@looped
async def test_without_the_setting_no_batch_is_looked_at(tmp_path: Path) -> None:
    """K2: `producer`, the default: no thread is asked, and no topic is remembered."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", compression_type="zstd")
        assert node.node.broker.recompressed
        await node.alter("t", compression_type="producer")
        await asyncio.sleep(0.1)
        assert not node.node.broker.recompressed
        for codec in CODECS:
            await answers(peer, sealed(lies.records(), codec=codec))
        assert node.node.stats.batches_checked_in_threads == 0
