"""The codecs: what they write, what they read, and how much they are allowed to make."""

import contextlib
import gzip
import struct
import tracemalloc

import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.wire.compression import Compression, compress, decompress

CODECS = list(Compression)
PACKED = [codec for codec in CODECS if codec is not Compression.NONE]
TEXT = b"quipu " * 20_000  # 120 kB: several blocks of every codec
MIB = 1 << 20


@given(data=st.binary(max_size=5_000), codec=st.sampled_from(CODECS))
@settings(max_examples=60, deadline=None)
def test_what_goes_in_comes_out(data: bytes, codec: Compression) -> None:
    """K2: every codec of Kafka's, both directions."""
    assert bytes(decompress(codec, compress(codec, data), size_max=len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_many_blocks_come_out(codec: Compression) -> None:
    """K2: data larger than one block of snappy, lz4 or zstd."""
    assert bytes(decompress(codec, compress(codec, TEXT), size_max=len(TEXT))) == TEXT


def test_gzip_is_read_by_the_standard_library_and_reads_it() -> None:
    """K2: an independent implementation agrees, both ways."""
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    assert bytes(decompress(Compression.GZIP, gzip.compress(TEXT), size_max=MIB)) == TEXT


@pytest.mark.parametrize(("codec", "name"), [
    (Compression.SNAPPY, "snappy"), (Compression.LZ4, "lz4"), (Compression.ZSTD, "zstd")])
def test_a_stock_client_agrees(codec: Compression, name: str) -> None:
    """K2: aiokafka reads what we write and we read what it writes."""
    encode = getattr(aiokafka_codec, f"{name}_encode")
    decode = getattr(aiokafka_codec, f"{name}_decode")

    assert bytes(decode(compress(codec, TEXT))) == TEXT
    assert bytes(decompress(codec, encode(TEXT), size_max=MIB)) == TEXT


def test_snappy_is_written_in_xerial_blocks() -> None:
    """K2: the framing byte by byte; a snappy block of 4 literal bytes is 04 0c and the bytes."""
    assert compress(Compression.SNAPPY, b"quip").hex(" ") == (
        "82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01 00 00 00 06 04 0c 71 75 69 70"
    )


def test_snappy_is_read_as_one_bare_block() -> None:
    """K2: clients in other languages leave the framing out."""
    bare = bytes.fromhex("04 0c 71 75 69 70")

    assert bytes(decompress(Compression.SNAPPY, bare, size_max=4)) == b"quip"


def test_lz4_blocks_are_independent() -> None:
    """K2: wire.Z2: the Java client refuses a frame whose blocks are linked (bit 5 of FLG is 0)."""
    frame = compress(Compression.LZ4, TEXT)

    assert frame[:4] == bytes.fromhex("04 22 4d 18")
    assert frame[4] >> 6 == 1  # version
    assert frame[4] & 0x20  # independent blocks


def test_an_lz4_frame_written_by_hand_is_read() -> None:
    """K2: the frame of the Java client: independent blocks, 64 KiB, no checksums."""
    block = b"quip"
    frame = (bytes.fromhex("04 22 4d 18 60 40 82")
             + struct.pack("<I", 0x80000000 | len(block)) + block  # a block stored as it is
             + struct.pack("<I", 0))

    assert bytes(decompress(Compression.LZ4, frame, size_max=4)) == block


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_over_the_limit_is_refused(codec: Compression) -> None:
    """K8: the bound is exact."""
    packed = compress(codec, TEXT)

    assert len(decompress(codec, packed, size_max=len(TEXT))) == len(TEXT)
    with pytest.raises(MalformedBytes):
        decompress(codec, packed, size_max=len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_takes_no_more_memory_than_its_limit(codec: Compression) -> None:
    """K8: wire.Z1: 64 MiB of zeros in a few kB, with a limit of 1 MiB, costs a few MiB and an
    error.
    """
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBytes):
            decompress(codec, bomb, size_max=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 * MIB


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    """K8: four bytes that announce 4 GiB."""
    with pytest.raises(MalformedBytes, match="exceeds the limit"):
        decompress(Compression.SNAPPY, bytes.fromhex("ff ff ff ff 0f 00"), size_max=MIB)


@pytest.mark.parametrize("codec", PACKED)
def test_cut_bytes_are_an_error_at_every_length(codec: Compression) -> None:
    """K8: a prefix is malformed or, for snappy, ends at a whole block; it is never the data."""
    packed = compress(codec, TEXT[:40_000])
    for size in range(len(packed)):
        try:
            got = bytes(decompress(codec, packed[:size], size_max=40_000))
        except MalformedBytes:
            continue
        assert codec is Compression.SNAPPY
        assert got in (b"", TEXT[:32_768])


@given(data=st.binary(max_size=200), codec=st.sampled_from(PACKED))
@settings(max_examples=100, deadline=None)
def test_junk_is_malformed_or_small(data: bytes, codec: Compression) -> None:
    """K8: wire.Z3: whatever the bytes are, the result is data in the bound or MalformedBytes."""
    with contextlib.suppress(MalformedBytes):
        assert len(decompress(codec, data, size_max=1_000)) <= 1_000
