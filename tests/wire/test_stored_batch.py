"""The stored form of a batch: golden bytes, and each kind of fault."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.batch_types import CHECKPOINT, DATA
from quipu.wire.record_batch import (
    HEADER,
    Record,
    check_batch,
    decode_records,
    encode_batch,
    parse_header,
)
from quipu.wire.stored_batch import (
    COVERED_END,
    COVERED_START,
    PREFIX_SIZE,
    STORED_HEADER_SIZE,
    Fault,
    StoredHeader,
    check_body,
    check_header,
    check_stored,
    kafka_batch,
    pack_prefix,
    parse_stored,
    stamp,
    walk_headers,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "stored-batch.md"
CASTAGNOLI = 0x82F63B78

GOLDEN = bytes.fromhex(
    "36 ff 25 7a"  # header_crc
    "01"  # type: data
    "01"  # layout
    "00 00"  # reserved
    "00 00 00 00 00 00 01 a3"  # log_offset 419
    "00 00 00 00 00 00 01 a1"  # baseOffset 417
    "00 00 00 47"  # batchLength 71
    "00 00 00 02"  # partitionLeaderEpoch 2
    "02"  # magic
    "a4 bc c3 5d"  # crc
    "00 00"  # attributes
    "00 00 00 00"  # lastOffsetDelta
    "00 00 01 9b 76 da a8 00"  # baseTimestamp
    "00 00 01 9b 76 da a8 00"  # maxTimestamp
    "ff ff ff ff ff ff ff ff"  # producerId
    "ff ff"  # producerEpoch
    "ff ff ff ff"  # baseSequence
    "00 00 00 01"  # count
    "2a 00 00 00 10 6f 72 64 65 72 2d 31 37 0e 33 20 6b 6e 6f 74 73 00"
)
GOLDEN_HEADER = StoredHeader(
    header_crc=0x36FF257A, batch_type=1, layout=1, reserved=0, log_offset=419, base_offset=417,
    batch_length=71, leader_epoch=2, magic=2, crc=0xA4BCC35D, attributes=0, last_offset_delta=0,
    base_timestamp=1_767_225_600_000, max_timestamp=1_767_225_600_000, producer_id=-1,
    producer_epoch=-1, base_sequence=-1, count=1)
GOLDEN_RECORD = Record(b"order-17", b"3 knots", (), 1_767_225_600_000, 417)


def bitwise_crc32c(data: bytes) -> int:
    """CRC-32C by its definition: slow, and nobody's library."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def stored(
    count: int = 3, *, batch_type: int = DATA, log_offset: int = 9, offset: int = 7
) -> bytes:
    batch = encode_batch([Record(b"k", b"v%d" % i, (), i) for i in range(count)],
                         base_offset=offset, leader_epoch=1)
    return pack_prefix(batch, batch_type=batch_type, log_offset=log_offset) + bytes(batch)


def with_header_made_sound(data: bytes, position: int, value: bytes) -> memoryview:
    """`data` with some bytes replaced and header_crc right for them."""
    changed = bytearray(data)
    changed[position : position + len(value)] = value
    covered = bytes(changed[COVERED_START:COVERED_END])
    changed[:COVERED_START] = struct.pack(">I", bitwise_crc32c(covered))
    return memoryview(changed)


def test_golden_bytes() -> None:
    """T1, T8: prefix and batch, byte by byte, are what we write and what we read."""
    batch = encode_batch([GOLDEN_RECORD], base_offset=417, leader_epoch=2)

    written = pack_prefix(batch, batch_type=DATA, log_offset=419) + bytes(batch)

    assert written.hex(" ") == GOLDEN.hex(" ")
    assert check_stored(memoryview(GOLDEN)) == GOLDEN_HEADER
    batch_read = kafka_batch(memoryview(GOLDEN), 0, GOLDEN_HEADER)
    assert list(decode_records(batch_read, size_max=1_000)) == [GOLDEN_RECORD]


def test_both_checksums_are_crc32c_over_the_bytes_documented() -> None:
    """T8: computed by the definition, not by the library that we use."""
    assert bitwise_crc32c(GOLDEN[4:37]) == GOLDEN_HEADER.header_crc
    assert bitwise_crc32c(GOLDEN[37:]) == GOLDEN_HEADER.crc


def test_the_dump_in_the_documentation_is_the_golden_batch() -> None:
    """T8: the worked example is not a drawing."""
    row_shape = re.compile(r"^([0-9a-f]{8})  ([0-9a-f ]{48,}?)  \|(.*)\|$", re.MULTILINE)
    rows = row_shape.findall(DOCUMENT.read_text())
    data = b"".join(bytes.fromhex(row[1]) for row in rows)

    assert [int(row[0], 16) for row in rows] == list(range(0, len(GOLDEN), 16))
    assert data == GOLDEN
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    assert "".join(row[2] for row in rows) == text


def test_the_table_in_the_documentation_is_the_layout() -> None:
    """T8: positions and types add up to the header that we pack."""
    sizes = {"u8": 1, "i8": 1, "u16": 2, "i16": 2, "u32": 4, "i32": 4, "i64": 8}
    row_shape = re.compile(r"^\| (\d+) \| \S+.*? \| ([ui]\d+) \|", re.MULTILINE)
    rows = row_shape.findall(DOCUMENT.read_text())
    position = 0
    for at, kind in rows:
        assert int(at) == position
        position += sizes[kind]

    assert len(rows) == len(StoredHeader._fields)
    assert position == STORED_HEADER_SIZE


def test_stamp_sets_what_the_broker_owns_and_nothing_else() -> None:
    """T1: the client's checksum survives; the prefix is the one of the batch as stamped."""
    batch = encode_batch([Record(b"k", b"v")])
    sent = bytes(batch)
    header = check_batch(memoryview(batch), size_max=1_000)

    prefix = stamp(memoryview(batch), header, batch_type=DATA, log_offset=12, base_offset=10,
                   leader_epoch=4)

    assert len(prefix) == PREFIX_SIZE
    assert prefix == pack_prefix(batch, batch_type=DATA, log_offset=12)
    read = check_stored(memoryview(prefix + batch))
    assert isinstance(read, StoredHeader)
    assert (read.log_offset, read.base_offset, read.leader_epoch) == (12, 10, 4)
    assert read.batch == header._replace(base_offset=10, leader_epoch=4)
    assert bytes(batch[16:]) == sent[16:]
    assert bytes(batch[8:12]) == sent[8:12]


def test_type_0_is_never_packed() -> None:
    """T2: wire.D3: an unset type stops at the assertion, before there are bytes."""
    batch = encode_batch([Record(b"k", b"v")])

    with pytest.raises(AssertionError):
        pack_prefix(batch, batch_type=0, log_offset=0)
    with pytest.raises(AssertionError):
        stamp(batch, parse_header(memoryview(batch)), batch_type=0, log_offset=0, base_offset=0,
              leader_epoch=0)


@pytest.mark.parametrize(("batch_type", "next_offset"), [(DATA, 10), (CHECKPOINT, 7), (99, 7)])
def test_only_data_takes_client_offsets(batch_type: int, next_offset: int) -> None:
    """T5, T11: wire.D2: internal and unknown types have no width for clients, but take log
    offsets.
    """
    header = parse_stored(memoryview(stored(3, batch_type=batch_type)))

    assert header.next_log_offset == 12
    assert header.next_offset == next_offset


FIELDS = {name: (start, size) for name, start, size in [
    ("header_crc", 0, 4), ("type", 4, 1), ("layout", 5, 1), ("reserved", 6, 2),
    ("log_offset", 8, 8), ("base_offset", 16, 8), ("batch_length", 24, 4), ("leader_epoch", 28, 4),
    ("magic", 32, 1), ("crc", 33, 4)]}
BODY_FIELDS = {name: (start, size) for name, start, size in [
    ("attributes", 37, 2), ("last_offset_delta", 39, 4), ("base_timestamp", 43, 8),
    ("max_timestamp", 51, 8), ("producer_id", 59, 8), ("producer_epoch", 67, 2),
    ("base_sequence", 69, 4), ("count", 73, 4), ("records", 77, len(stored()) - 77)]}


def flipped(data: bytes, start: int, size: int) -> Iterator[memoryview]:
    for bit in range(8 * start, 8 * (start + size)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield memoryview(changed)


@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_before_kafkas_checksum_is_found(field: str) -> None:
    """T8, T12: every bit of type, offsets, length, epoch and both checksums."""
    for data in flipped(stored(), *FIELDS[field]):
        assert check_header(data) is Fault.HEADER_CRC


@pytest.mark.parametrize("field", BODY_FIELDS)
def test_a_flipped_bit_under_kafkas_checksum_is_found(field: str) -> None:
    """T8, T12: the header still reads, the body does not pass."""
    for data in flipped(stored(), *BODY_FIELDS[field]):
        header = check_header(data)
        assert isinstance(header, StoredHeader)
        assert check_body(data, 0, header) is Fault.BODY_CRC
        assert check_stored(data) is Fault.BODY_CRC


def test_the_fields_above_are_all_there_is() -> None:
    """T8: no byte of a stored batch escapes both tests."""
    spans = sorted([*FIELDS.values(), *BODY_FIELDS.values()])

    position = 0
    for start, size in spans:
        assert start == position
        position += size
    assert position == len(stored())


def test_every_truncation_is_too_short() -> None:
    """T12: a torn write is distinguished from a damaged one, at every byte."""
    data = memoryview(stored())
    for size in range(len(data)):
        assert check_header(data[:size]) is Fault.TOO_SHORT
        assert check_header(data, 0, end=size) is Fault.TOO_SHORT

    assert isinstance(check_header(data), StoredHeader)


def test_zeroed_space_is_no_batch() -> None:
    """T12: what a file system leaves after power loss."""
    assert check_header(memoryview(bytes(4_096))) is Fault.HEADER_CRC


@pytest.mark.parametrize(("position", "value", "fault"), [
    (4, b"\x00", Fault.UNSET_TYPE),
    (5, b"\x02", Fault.LAYOUT),
    (6, b"\x00\x01", Fault.LAYOUT),
    (32, b"\x03", Fault.LAYOUT),
    (24, b"\x00\x00\x00\x30", Fault.LENGTH),
    (24, b"\xff\xff\xff\xff", Fault.LENGTH),
    (24, b"\x7f\xff\xff\xff", Fault.LENGTH),
    (24, b"\x00\x0f\x00\x00", Fault.TOO_SHORT),
])
def test_a_sound_header_with_an_impossible_value_is_told_apart(
    position: int, value: bytes, fault: Fault
) -> None:
    """T2, T8: checksums hold, yet it is no batch: type 0, later layouts, lengths."""
    assert check_header(with_header_made_sound(stored(), position, value)) is fault


def test_a_body_of_another_batch_is_found() -> None:
    """T8: wire.D1: header_crc binds the header to one body."""
    first, second = stored(), stored(offset=11)
    mixed = memoryview(first[:37] + second[37:-2] + b"x\x00")

    assert check_stored(mixed) is Fault.BODY_CRC


def test_a_walk_gives_every_header_and_then_the_fault() -> None:
    """T12: positions and offsets follow from each other up to the torn end."""
    whole = [stored(2, log_offset=0, offset=0), stored(1, batch_type=99, log_offset=2, offset=2),
             stored(3, log_offset=3, offset=2)]
    data = memoryview(b"".join(whole) + stored()[:-1])

    found = list(walk_headers(data))

    assert [position for position, _ in found] == [
        0, len(whole[0]), len(whole[0]) + len(whole[1]), sum(map(len, whole))]
    headers = [header for _, header in found[:3]]
    assert [(h.log_offset, h.base_offset) for h in headers if isinstance(h, StoredHeader)] == [
        (0, 0), (2, 2), (3, 2)]
    assert found[3][1] is Fault.TOO_SHORT


@given(fields=st.tuples(st.integers(1, 255), st.integers(0, 2**62), st.integers(0, 2**62),
                        st.integers(0, 2**31 - 1)),
       record=st.builds(Record, key=st.none() | st.binary(max_size=20),
                        value=st.none() | st.binary(max_size=20), timestamp=st.integers(0, 2**62)))
@settings(max_examples=60, deadline=None)
def test_a_stored_batch_survives_a_round_trip(
    fields: tuple[int, int, int, int], record: Record
) -> None:
    """T1, T8: any type, offsets and epoch come back as they were written."""
    batch_type, log_offset, base_offset, epoch = fields
    batch = encode_batch([record], base_offset=base_offset, leader_epoch=epoch)
    data = memoryview(pack_prefix(batch, batch_type=batch_type, log_offset=log_offset) + batch)

    header = check_stored(data)

    assert isinstance(header, StoredHeader)
    assert (header.batch_type, header.log_offset, header.base_offset, header.leader_epoch) == fields
    assert header.size == len(data)
    assert kafka_batch(data, 0, header) == batch
    assert header.batch == HEADER.unpack_from(batch)


@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_junk_is_a_fault(data: bytes) -> None:
    """T12: no bytes make a check raise."""
    assert isinstance(check_stored(memoryview(data)), Fault)
