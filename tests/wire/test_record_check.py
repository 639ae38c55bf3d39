"""Records are what their batch says, or the batch is refused: every kind of lie, every codec."""

import gzip
import tracemalloc
from typing import Any

import cramjam
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from quipu.model.errors import Code, QuipuError, RequestError
from quipu.wire import _records_pure, records, scan_run
from quipu.wire.compression import Compression, compress
from quipu.wire.fast import check_batch
from quipu.wire.record_batch import (
    HEADER_SIZE,
    Record,
    count_max,
    decode_records,
    encode_batch,
    parse_header,
)
from quipu.wire.record_check import InvalidRecords, check_records, decompressed_size_max
from tests.harness import lies
from tests.harness.lies import CODECS, COUNT, lying_batches, sealed, true_batch, varint

SIZE_MAX = 8 << 20
EVERY_LIE = [(codec, name) for codec in CODECS for name in lying_batches(codec)]


def check(batch: bytes | bytearray, *, keyed: bool = False, size_max: int = SIZE_MAX) -> Any:
    view = memoryview(batch)
    return check_records(view, check_batch(view, size_max=SIZE_MAX), keyed=keyed,
                         size_max=size_max)


@pytest.mark.parametrize("codec", CODECS)
def test_true_batches_pass(codec: int) -> None:
    """K2: or else nothing could be stored."""
    for count in (1, 2, 100, 5000):
        seen = check(true_batch(codec, count), keyed=True)
        assert seen.fault == 0
        assert seen.oldest == seen.newest > 0


@pytest.mark.parametrize(("codec", "name"), EVERY_LIE)
def test_a_lie_is_refused_with_an_error_that_is_not_retried(codec: int, name: str) -> None:
    """K8: wire.K1, wire.K2, wire.K3: a client that gets INVALID_RECORD gives up; CORRUPT_MESSAGE
    it would send for ever.
    """
    with pytest.raises(RequestError) as raised:
        check(lying_batches(codec)[name])
    assert raised.value.code == Code.INVALID_RECORD, raised.value


@pytest.mark.parametrize("name", sorted(lies.BODIES))
def test_the_record_is_named(name: str) -> None:
    """K2: its index is in the response, from Produce v8 on (KIP-467)."""
    with pytest.raises(InvalidRecords) as raised:
        check(lying_batches(0)[name])
    ((index, words),) = raised.value.record_errors
    assert 0 <= index < COUNT
    assert words
    assert words in str(raised.value)


def test_records_without_keys_are_named_one_by_one_and_not_without_end() -> None:
    """K2: where keys are asked for."""
    keyless = {"key": varint(-1)}
    body = b"".join(
        lies.record(index, **(keyless if index in (1, 3) else {})) for index in range(5))
    with pytest.raises(InvalidRecords) as raised:
        check(sealed(body, count=5), keyed=True)
    assert [index for index, _ in raised.value.record_errors] == [1, 3]
    assert check(sealed(body, count=5)).fault == 0
    many = b"".join(lies.record(index, **keyless) for index in range(3000))
    with pytest.raises(InvalidRecords) as raised:
        check(sealed(many, count=3000, codec=Compression.ZSTD), keyed=True)
    assert len(raised.value.record_errors) == records.KEYLESS_MAX


def test_times_are_those_of_the_records() -> None:
    """K2: whatever the header's timestamps are; records without one do not count."""
    times = [1000, 400, 3000, -1, 2000]
    body = b"".join(lies.record(index, timestamp=varint(time - 1000))
                    for index, time in enumerate(times))
    seen = check(sealed(body, count=5, timestamp=1000, max_timestamp=7))
    assert (seen.oldest, seen.newest) == (400, 3000)
    seen = check(sealed(lies.records(1), count=1, timestamp=-1))
    assert (seen.oldest, seen.newest) == (-1, -1)


# --- compressed batches -----------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_before_memory_is_taken(codec: int) -> None:
    """K8: wire.K4: by the framing if that has the size, else within the limit; never above it."""
    batch = sealed(b"", codec=codec, packed=lies.bomb(codec, 100 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as raised:
            check(batch, size_max=2 << 20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert raised.value.code == Code.MESSAGE_TOO_LARGE
    assert "max.decompressed.message.bytes = 2097152" in str(raised.value)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_fits_the_limit_is_taken_to_the_byte(codec: int) -> None:
    """K2: a batch of exactly as many bytes passes, and with one byte less allowed it does not."""
    body = lies.records(30_000)
    batch = sealed(body, count=30_000, codec=codec)
    assert check(batch, size_max=len(body)).fault == 0
    with pytest.raises(RequestError) as raised:
        check(batch, size_max=len(body) - 1)
    assert raised.value.code == Code.MESSAGE_TOO_LARGE


@given(body=st.binary(max_size=300) | st.integers(1, 300_000).map(bytes),
       codec=st.sampled_from(CODECS[1:]), linked=st.booleans(), sized=st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_bound_from_the_framing_is_never_below_what_comes_out(
    body: bytes, codec: int, linked: bool, sized: bool
) -> None:
    """K8: for every way in which our codecs write a frame; bounds that are exact are exact."""
    packed = compress(Compression(codec), body)
    if codec == Compression.LZ4:
        frame = cramjam.lz4.Compressor(block_linked=linked, content_checksum=sized)
        frame.compress(body)
        packed = bytes(frame.finish())
    if codec == Compression.ZSTD and sized:
        stream = cramjam.zstd.Compressor()
        stream.compress(body)
        packed = bytes(stream.finish())
    if codec == Compression.SNAPPY and linked:
        packed = bytes(cramjam.snappy.compress_raw(body))
    if codec == Compression.GZIP and linked:
        packed = gzip.compress(body, 1)
    found = decompressed_size_max(memoryview(sealed(b"", codec=codec, packed=packed)))
    assert found >= len(body)
    if codec in (Compression.GZIP, Compression.SNAPPY):
        assert found == len(body)


@given(data=st.data(), codec=st.sampled_from(CODECS[1:]))
@settings(max_examples=300, deadline=None)
def test_both_twins_bound_damaged_frames_alike(data: st.DataObject, codec: int) -> None:
    """K8: and what a codec reads from a damaged frame that has a bound is within it."""
    size = data.draw(st.sampled_from([0, 1, 50, 5000, 200_000]))
    packed = bytearray(compress(Compression(codec), bytes(range(256)) * (size // 256 + 1)))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, min(len(packed) - 1, 40)))
        packed[place] = data.draw(st.sampled_from([0, 1, 4, 0x20, 0x40, 0x7F, 0x80, 0xA0, 0xFF]))
    del packed[len(packed) - data.draw(st.sampled_from([0, 0, 1, 4, 9])):]
    packed += data.draw(st.sampled_from([b"", b"", b"\0\0\0\0", b"tail"]))
    frame = memoryview(packed)
    for name in ("lz4_size_max", "zstd_size_max", "snappy_size_max"):
        assert getattr(records, name)(frame) == getattr(_records_pure, name)(frame), name
    bound = decompressed_size_max(memoryview(sealed(b"", codec=codec, packed=bytes(packed))))
    if bound >= 0 and codec in (Compression.LZ4, Compression.ZSTD):
        out = bytearray(4 << 20)
        into = {Compression.LZ4: cramjam.lz4, Compression.ZSTD: cramjam.zstd}[Compression(codec)]
        try:
            written = into.decompress_into(frame, out)
        except cramjam.DecompressionError:
            return
        assert written <= bound


# --- the twins, and two readers by others -----------------------------------------------------

numbers = st.sampled_from([0, 1, 2, 3, -1, -2, 63, 64, 2**31 - 1, -(2**31), 2**63 - 1])
fields = st.fixed_dictionaries({}, optional={
    "length": numbers.map(varint), "timestamp": numbers.map(varint),
    "offset": numbers.map(varint), "attributes": st.binary(min_size=1, max_size=1),
    "key": st.binary(max_size=6), "value": st.binary(max_size=6),
    "headers": st.binary(max_size=8), "more": st.binary(max_size=3),
})


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records, of which some have a field changed, some bytes too, and a count."""
    count = draw(st.integers(1, 5))
    lying = draw(st.dictionaries(st.integers(0, count - 1), fields, max_size=1))
    body = bytearray(b"".join(
        lies.record(index, **lying.get(index, {})) for index in range(count)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    del body[len(body) - draw(st.sampled_from([0, 0, 0, 1, 5])):]
    return bytes(body), count + draw(st.sampled_from([0, 0, 0, -1, 1, 2**31 - 6]))


def read_by(reader: Any, batch: bytes) -> list[tuple[int, Any, Any]] | None:
    """The offsets, keys and values that another client reads; None if it cannot."""
    try:
        found = reader(batch).next_batch()
        assert found.validate_crc()
        return [(each.offset, each.key, each.value) for each in found]
    except Exception:  # noqa: BLE001 it fails in its own ways
        return None


@given(case=bodies(), timestamp=st.sampled_from([1000, -1, 2**63 - 1, -(2**63)]),
       keyed=st.booleans(), threaded=st.booleans())
@settings(max_examples=1500, deadline=None)
def test_compiled_plain_and_the_readers_of_others_agree(
    case: tuple[bytes, int], timestamp: int, keyed: bool, threaded: bool
) -> None:
    """K8: both implementations return the same; and other libraries read all records that pass, in
    order.
    """
    body, count = case
    batch = sealed(body, count=count, timestamp=timestamp)
    view = memoryview(batch)
    options = {"keyed": keyed, "threaded": threaded}
    seen = records.walk_records(view, HEADER_SIZE, count, timestamp, **options)
    assert seen == _records_pure.walk_records(view, HEADER_SIZE, count, timestamp, **options)
    plain = (seen.fault == 0 or (seen.fault == records.RecordFault.KEYLESS and not keyed)) and (
        seen.newest == timestamp)
    assert records.are_plain(view, keyed) == _records_pure.are_plain(view, keyed) == plain
    for wanted in (timestamp, timestamp + 1 if timestamp < 2**62 else 0, 2**63 - 1):
        for first in (0, 2):
            one, other = (module.find_time(view, HEADER_SIZE, count, timestamp, wanted=wanted,
                                           first_delta=first)
                          for module in (records, _records_pure))
            assert one == other
    if seen.fault not in (0, records.RecordFault.KEYLESS):
        return
    ours = [(each.offset, each.key, each.value)
            for each in decode_records(view, size_max=SIZE_MAX)]
    assert [offset for offset, _, _ in ours] == list(range(count))
    for reader in (AiokafkaRecords, KafkaPythonRecords):
        assert read_by(reader, bytes(batch)) == ours, reader


@given(text=st.binary(max_size=8) | st.text(max_size=4).map(str.encode))
@settings(max_examples=500)
def test_names_of_headers_are_text_as_python_reads_it(text: bytes) -> None:
    """K8: both implementations detect overlong forms, surrogates and cut sequences."""
    body = lies.record(0, headers=varint(1) + varint(len(text)) + text + varint(-1))
    try:
        text.decode()
        want = 0
    except UnicodeDecodeError:
        want = int(records.RecordFault.HEADER_NAME)
    for module in (records, _records_pure):
        assert module.walk_records(memoryview(body), 0, 1, 0).fault == want


@given(data=st.data(), codec=st.sampled_from(CODECS))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_records_or_a_typed_error(data: st.DataObject, codec: int) -> None:
    """K8: wire.K1, wire.K2: what is accepted decodes to as many records as the header says, offset
    by offset.
    """
    batch = sealed(b"", codec=codec, count=data.draw(st.integers(1, 4)),
                   packed=data.draw(st.binary(max_size=80)))
    view = memoryview(batch)
    try:
        header = check_batch(view, size_max=SIZE_MAX)
        check_records(view, header, keyed=False, size_max=1 << 20)
    except QuipuError:
        return
    found = [each.offset for each in decode_records(view, size_max=1 << 20)]
    assert found == list(range(header.count))


@pytest.mark.parametrize("codec", CODECS)
def test_no_header_counts_more_than_its_bytes_hold(codec: int) -> None:
    """T5, K8: refused by the header alone, whether or not records are checked."""
    batch = encode_batch([Record(None, None, (), 1)] * 9, compression=codec)
    size = len(batch) - HEADER_SIZE
    assert parse_header(memoryview(batch)).count <= count_max(size, codec)
    with pytest.raises(RequestError, match="cannot lie in") as raised:
        check_batch(memoryview(sealed(b"", codec=codec, packed=batch[HEADER_SIZE:],
                                      count=2**31 - 1)), size_max=SIZE_MAX)
    assert raised.value.code == Code.INVALID_RECORD


def test_the_twins_are_two_where_something_was_compiled() -> None:
    """K8: else these tests hold one function against itself."""
    assert (records.walk_records is not _records_pure.walk_records) == records.COMPILED
    assert records.COMPILED == scan_run.COMPILED
