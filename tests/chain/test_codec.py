"""Messages as bytes: golden ones, arbitrary ones, and damaged ones."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.chain.codec import Addressed, decode, decode_all, encode, encode_replicate
from quipu.chain.messages import (
    ENTRIES_MAX,
    EPOCHS_MAX,
    OPEN,
    REQUIRED,
    RESTART,
    TRUNCATE,
    Ack,
    DescribeLog,
    DescribeReason,
    Fenced,
    LogDescription,
    Mark,
    Message,
    Replicate,
)
from quipu.model.bounds import EPOCH_MAX, OFFSET_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.ids import Epoch, LogOffset, Offset

TOPIC = bytes(range(16))
ADDRESS = "000102030405060708090a0b0c0d0e0f 00000007 00000005"
DESCRIBED = LogDescription(
    Epoch(5), DescribeReason.REJECTION, 9, LogOffset(1), LogOffset(300), LogOffset(2),
    ((Epoch(1), LogOffset(0)), (Epoch(4), LogOffset(20))))
REPLICATE = Replicate(
    Epoch(5), 6, OPEN | REQUIRED, 9, LogOffset(20), Epoch(4),
    Mark(LogOffset(18), Offset(17)), Mark(LogOffset(16), Offset(15)), LogOffset(30),
    LogOffset(0), (b"abc", b"de"))
ACK = Ack(Epoch(5), 9, Mark(LogOffset(18), Offset(17)), LogOffset(19), LogOffset(16))

DESCRIBED_BYTES = (
    f"02 {ADDRESS} 01 0000000000000009 0000000000000001 000000000000012c 0000000000000002 0002"
    " 00000001 0000000000000000 00000004 0000000000000014")
REPLICATE_BYTES = (
    f"03 {ADDRESS} 00000006 09 0000000000000009 0000000000000014 00000004 0000000000000012"
    " 0000000000000011 0000000000000010 000000000000000f 000000000000001e 0000000000000000"
    " 0002 00000003 00000002 616263 6465")
ACK_BYTES = (
    f"04 {ADDRESS} 0000000000000009 0000000000000012 0000000000000011 0000000000000013"
    " 0000000000000010")

GOLDEN: list[tuple[Message, str]] = [
    (DescribeLog(Epoch(5)), f"01 {ADDRESS}"),
    (DESCRIBED, DESCRIBED_BYTES),
    (REPLICATE, REPLICATE_BYTES),
    (ACK, ACK_BYTES),
    (Fenced(Epoch(5)), f"05 {ADDRESS}"),
]


def joined(message: Message) -> bytes:
    return b"".join(encode(TOPIC, 7, message))


@pytest.mark.parametrize(("message", "want"), GOLDEN, ids=lambda each: type(each).__name__)
def test_golden_bytes(message: Message, want: str) -> None:
    """V11: every message carries its epoch, and a replicate message the end it expects."""
    data = joined(message)

    assert data.hex() == want.replace(" ", "")
    assert decode(memoryview(data)) == (Addressed(TOPIC, 7, message), len(data))


def test_many_messages_in_one_frame() -> None:
    frame = memoryview(b"".join(joined(message) for message, _ in GOLDEN))

    assert [each.message for each in decode_all(frame)] == [message for message, _ in GOLDEN]


def test_entries_are_not_copied() -> None:
    """T6: encoded entries are the log's own buffers, decoded ones are views of the frame."""
    entry = memoryview(b"a stored batch")
    head, *entries = encode_replicate(TOPIC, 7, REPLICATE, [entry])
    assert entries == [entry]
    assert entries[0] is entry

    frame = memoryview(bytes(head) + bytes(entry))
    message = decode(frame)[0].message
    assert isinstance(message, Replicate)
    assert isinstance(message.entries[0], memoryview)
    assert message.entries[0].obj is frame.obj


positions = st.integers(0, OFFSET_MAX)
sessions = st.integers(1, (1 << 63) - 1)
epochs = st.integers(0, EPOCH_MAX).map(Epoch)


@st.composite
def marks(draw: st.DrawFn, at_most: int = (1 << 63) - 1) -> Mark:
    log = draw(st.integers(0, at_most))
    return Mark(LogOffset(log), Offset(draw(st.integers(0, log))))


@st.composite
def replicates(draw: st.DrawFn) -> Replicate:
    flags = draw(st.sampled_from([0, OPEN, OPEN | TRUNCATE, OPEN | RESTART]))
    count = {OPEN | TRUNCATE: 0, OPEN | RESTART: 1}.get(flags)
    low, high = (0, 4) if count is None else (count, 4 * count)
    sender_end = draw(positions)
    return Replicate(
        draw(epochs), draw(st.integers(0, (1 << 31) - 1)), flags | draw(st.sampled_from([0, 8])),
        draw(sessions), LogOffset(draw(st.integers(0, sender_end))),
        Epoch(draw(st.integers(-1, (1 << 31) - 1))), draw(marks()), draw(marks()),
        LogOffset(sender_end), LogOffset(draw(positions)),
        tuple(draw(st.lists(st.binary(min_size=1, max_size=40), min_size=low, max_size=high))))


@st.composite
def described(draw: st.DrawFn) -> LogDescription:
    starts = sorted(draw(st.sets(st.integers(0, 1 << 40), max_size=6)))
    numbers = sorted(draw(st.sets(epochs, min_size=len(starts), max_size=len(starts))))
    log_end = draw(st.integers(starts[-1] + 1 if starts else 0, 1 << 50))
    return LogDescription(
        draw(st.integers(numbers[-1] if numbers else 0, EPOCH_MAX).map(Epoch)),
        draw(st.sampled_from(DescribeReason)), draw(st.integers(0, 1 << 62)),
        LogOffset(draw(st.integers(0, log_end))), LogOffset(log_end), LogOffset(draw(positions)),
        tuple(zip(numbers, map(LogOffset, starts), strict=True)))


@st.composite
def acks(draw: st.DrawFn) -> Ack:
    acked = draw(marks(OFFSET_MAX))
    return Ack(draw(epochs), draw(sessions), acked,
               LogOffset(draw(st.integers(acked.log, OFFSET_MAX))), LogOffset(draw(positions)))


MESSAGES = st.one_of(
    replicates(), described(), acks(), epochs.map(DescribeLog), epochs.map(Fenced))


@settings(max_examples=150, deadline=None)
@given(message=MESSAGES)
def test_decoding_undoes_encoding(message: Message) -> None:
    data = memoryview(joined(message))

    assert decode(data)[0].message == message
    for size in range(0, len(data), max(1, len(data) // 40)):
        with pytest.raises(MalformedBytes):
            list(decode_all(data[:size] if size else memoryview(b"\0")))


@settings(max_examples=300, deadline=None)
@given(message=MESSAGES, flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)),
                                        min_size=1, max_size=4))
def test_damaged_bytes_are_rejected_or_decode_to_a_message(
    message: Message, flips: list[tuple[int, int]]
) -> None:
    """V11: decoding any bytes gives a typed error, or a message within its bounds."""
    data = bytearray(joined(message))
    for place, bits in flips:
        data[place % len(data)] ^= bits
    try:
        found = decode(memoryview(data))[0].message
    except MalformedBytes:
        return
    if isinstance(found, Replicate):
        assert sum(map(len, found.entries)) <= len(data)
        assert len(found.entries) <= ENTRIES_MAX
    if isinstance(found, LogDescription):
        assert len(found.epochs) <= EPOCHS_MAX
    assert joined(found)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_rejected(data: bytes) -> None:
    with suppress(MalformedBytes):
        assert list(decode_all(memoryview(data))) or not data


BAD = [
    ("an unknown kind", b"\x09" + joined(ACK)[1:]),
    ("a partition below zero", joined(ACK)[:17] + b"\xff" * 4 + joined(ACK)[21:]),
    ("an ack beyond the sender's end", joined(ACK._replace(end_log=LogOffset(17)))),
    ("more client offsets than log offsets",
     joined(ACK._replace(acked=Mark(LogOffset(3), Offset(4))))),
    ("a session without a number", joined(REPLICATE._replace(session=0))),
    ("a truncation with entries", joined(REPLICATE._replace(flags=OPEN | TRUNCATE))),
    ("a restart without entries", joined(REPLICATE._replace(flags=OPEN | RESTART, entries=()))),
    ("a truncation that opens no session", joined(REPLICATE._replace(flags=TRUNCATE, entries=()))),
    ("a truncation and a restart", joined(REPLICATE._replace(flags=OPEN | TRUNCATE | RESTART))),
    ("an unknown flag", joined(REPLICATE._replace(flags=16))),
    ("entries after the sender's end", joined(REPLICATE._replace(sender_end=LogOffset(19)))),
    ("an empty entry", joined(REPLICATE._replace(entries=(b"",)))),
    ("epochs that run backwards",
     joined(DESCRIBED._replace(epochs=(DESCRIBED.epochs[1], DESCRIBED.epochs[0])))),
    ("an epoch after the end", joined(DESCRIBED._replace(log_end=LogOffset(20)))),
    ("a log that ends before it starts",
     joined(DESCRIBED._replace(log_start=LogOffset(9), log_end=LogOffset(8), epochs=()))),
    ("no reason", joined(DESCRIBED)[:25] + b"\x04" + joined(DESCRIBED)[26:]),
]


@pytest.mark.parametrize("data", [case[1] for case in BAD], ids=[case[0] for case in BAD])
def test_numbers_out_of_bounds_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedBytes):
        decode(memoryview(data))


def test_a_length_is_checked_before_memory_is_taken() -> None:
    head = encode_replicate(TOPIC, 7, REPLICATE, [])[0]
    lying = bytes(head[:-2]) + (60_000).to_bytes(2, "big") + b"\xff" * 64

    with pytest.raises(MalformedBytes, match="60000 entries"):
        decode(memoryview(lying))
