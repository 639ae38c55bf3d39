"""Batches that are compressed again: everything but the codec stays as it was."""

import os

import pytest

from quipu.model.errors import Code, RequestError
from quipu.wire.compression import Compression, compress, decompress
from quipu.wire.recompression import recompress
from quipu.wire.record_batch import HEADER_SIZE, check_batch, decode_records, parse_header
from quipu.wire.record_check import decompress_records
from tests.harness import lies
from tests.harness.lies import CODECS, sealed

COUNT = 5
LEVELS = [(Compression.GZIP, 1, 9), (Compression.LZ4, 1, 12), (Compression.ZSTD, 1, 19)]


def made(batch: bytearray, codec: Compression, *, size_max: int = 1 << 20) -> bytearray:
    records = decompress_records(memoryview(batch), 1 << 20)
    body = memoryview(batch)[HEADER_SIZE:] if records is None else records
    return recompress(memoryview(batch), body, codec, None, size_max=size_max)


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_only_codec_length_and_checksum_change(source: Compression, target: Compression) -> None:
    """K2: timestamps, producer, sequence, deltas and other attributes are those of the producer."""
    batch = sealed(lies.records(COUNT), count=COUNT, codec=source, timestamp=1_700_000_000_000,
                   max_timestamp=1_700_000_000_777, producer=(42, 7, 11))
    before = bytes(batch)

    header = check_batch(memoryview(again := made(batch, target)), size_max=1 << 20)

    old = parse_header(memoryview(batch))
    assert bytes(batch) == before, "the bytes that were sent are not touched"
    assert header.compression == target
    assert header._replace(batch_length=0, crc=0, attributes=0) == old._replace(
        batch_length=0, crc=0, attributes=0)
    assert list(decode_records(memoryview(again), size_max=1 << 20)) == list(
        decode_records(memoryview(batch), size_max=1 << 20))


def test_a_batch_that_would_be_too_large_is_refused() -> None:
    """K8: what compressed well may exceed max.message.bytes once it is not compressed."""
    batch = sealed(lies.records(5000), count=5000, codec=4)
    assert len(batch) < 10_000

    with pytest.raises(RequestError, match="after compression by none exceeds") as caught:
        made(batch, Compression.NONE, size_max=10_000)

    assert caught.value.code is Code.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("codec", "low", "high"), LEVELS)
def test_a_level_makes_a_difference(codec: Compression, low: int, high: int) -> None:
    """K5: compression.*.level; whatever the level is, any reader reads it."""
    words = [os.urandom(6).hex().encode() for _ in range(500)]
    data = b" ".join(words[index * index % 499] for index in range(40_000))
    small, large = compress(codec, data, high), compress(codec, data, low)

    assert len(small) < len(large)
    assert decompress(codec, small, size_max=len(data)) == data
    assert decompress(codec, large, size_max=len(data)) == data
