"""Objects of diskless topics: what is encoded is read back, and damage is found."""

import struct
from collections.abc import Sequence
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.errors import CorruptObject
from quipu.diskless.objects.encoding import PendingBatch
from quipu.diskless.objects.footer import (
    HEADER_SIZE,
    TRAILER_SIZE,
    FooterPointer,
    ObjectFooter,
    decode_footer,
    encode_footer,
    encode_trailer,
    is_object,
)
from quipu.diskless.objects.names import ObjectName, find_name, has_batches
from quipu.diskless.objects.reading import (
    check_batch,
    check_run,
    footer_of,
    pending_of_run,
    place_batches,
    read_footer,
)
from quipu.diskless.objects.receipts import (
    LogNote,
    Receipt,
    duplicate_of,
    make_notes,
    make_receipt,
    merge_notes,
    receipts_to_keep,
)
from quipu.diskless.values import LEADER_EPOCH, BatchRun, LogKey
from quipu.model.errors import Code, UnknownFormat
from quipu.model.ids import Offset, TimestampMs
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import Buffer, ByteRange
from quipu.wire.record_batch import decode_records, parse_header
from tests.diskless.objects.builders import (
    NAME,
    TOPIC,
    WRITER,
    batch_of,
    logs,
    names,
    object_of,
    stored,
)
from tests.looped import looped

A, B = LogKey(TOPIC, 0), LogKey(TOPIC, 1)
FOOTER_FAULTS = st.sampled_from([(44, 1 << 31), (40, 3), (48, 9), (52, (1 << 32) - 1), (56, 7)])

receipts = st.builds(Receipt, names, st.lists(st.integers(-1 << 40, 1 << 40)).map(tuple))
notes = st.builds(lambda log, start, more: LogNote(log, Offset(start), Offset(start + more)),
                  logs, st.integers(0, 1 << 40), st.integers(0, 1 << 40))


@st.composite
def pending(draw: st.DrawFn) -> PendingBatch:
    log = draw(st.sampled_from([A, B, LogKey(UUID(int=1), 5)]))
    values = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=4))
    producer = draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 3),
                                          st.integers(0, 100)))
    return batch_of(log, *values, producer=producer, timestamp=draw(st.integers(0, 1 << 41)),
                    base_offset=draw(st.integers(-1, 1 << 40)))


def run_of(batches: list[PendingBatch], base_offset: int, position: int = HEADER_SIZE) -> BatchRun:
    counts = sum(batch.header.count for batch in batches)
    return BatchRun(batches[0].log, Offset(base_offset), Offset(base_offset + counts), NAME.key,
                    position, sum(len(batch.data) for batch in batches), len(batches),
                    TimestampMs(0))


@given(name=names)
def test_a_key_says_who_wrote_the_object(name: ObjectName) -> None:
    """D4: both kinds of keys are told apart, and name writer and sequence."""
    assert find_name(name.key) == find_name(name.receipts_key) == name
    assert has_batches(name.key)
    assert not has_batches(name.receipts_key)
    assert find_name(name.key[:-1]) is None


def test_other_keys_name_no_object() -> None:
    """D4: a wrong prefix, a number that is too large, other characters."""
    key = NAME.key
    folder, prefix, end = key.split("/")
    other = f"{int(prefix, 16) ^ 1:02x}"
    for wrong in ("", f"{folder}/{other}/{end}", key.upper(), f"x/{key}", f"{key}0",
                  key.replace("/2-", "/9999999999-"), key.replace("-00000", "-f0000")):
        assert find_name(wrong) is None


def test_keys_are_spread_and_ordered_by_sequence() -> None:
    """D4: one writer's objects lie under many prefixes; their ends sort as they were written."""
    keys = [ObjectName(NAME.node_id, WRITER, number).key for number in range(1000)]
    ends = [key.rpartition("/")[2] for key in keys]
    assert len({key[:10] for key in keys}) > 240
    assert ends == sorted(ends)
    assert len(set(keys)) == 1000


@given(batches=st.lists(pending(), max_size=20), known=st.lists(receipts, max_size=3),
       noted=st.lists(notes, max_size=3))
def test_what_is_encoded_is_decoded(
        batches: list[PendingBatch], known: list[Receipt], noted: list[LogNote]) -> None:
    """D4: batches sorted by log and stable within it, each as it came.

    Cites diskless.objects.O3 and diskless.objects.O4.
    """
    encoded = object_of(batches, receipts=known, notes=noted)
    data = stored(encoded)
    footer = footer_of(memoryview(data))

    assert len(data) == encoded.size
    assert is_object(data)
    assert footer.name == NAME
    assert footer.created_ms == 5000
    assert footer.receipts == tuple(known)
    assert footer.notes == tuple(noted)
    assert [each.coordinates for each in footer.batches] == encoded.coordinates
    assert encoded.batches == sorted(batches, key=lambda batch: batch.log)
    assert encoded.key == (NAME.key if batches else NAME.receipts_key)
    for found, batch in zip(footer.batches, encoded.batches, strict=True):
        place = found.coordinates
        view = memoryview(data)[place.position : place.position + place.size]
        assert view == batch.data
        assert found.base_offset == batch.base_offset
        assert check_batch(view, found) == batch.header
    assert encode_footer(footer) == data[footer.end : -TRAILER_SIZE]


def test_batches_are_not_copied() -> None:
    """D1: the buffers that are stored are those that came."""
    batches = [batch_of(B, b"1"), batch_of(A, b"2"), batch_of(B, b"3")]
    buffers = object_of(batches).buffers
    assert buffers[1] is batches[1].data
    assert buffers[2] is batches[0].data
    assert buffers[3] is batches[2].data


@looped
@pytest.mark.parametrize("tail_size", [1, 100, 1 << 16])
async def test_a_footer_is_read_by_at_most_two_gets(tail_size: int) -> None:
    """D36: one ranged get if the footer is within the tail, else two."""
    encoded = object_of([batch_of(A, bytes(100)) for _ in range(50)])
    store = CountingStore(lambda: 1)
    await store.put(encoded.key, encoded.buffers)
    footer = await read_footer(store, encoded.key, encoded.size, tail_size=tail_size)
    assert [batch.coordinates for batch in footer.batches] == encoded.coordinates
    assert store.get_count == (1 if tail_size == 1 << 16 else 2)


class CountingStore(MemoryStore):
    get_count = 0

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        self.get_count += 1
        return await super().get_ranges(key, ranges)


@looped
async def test_an_object_under_another_key_is_refused() -> None:
    """D4: an object that was copied over another one is not mistaken for it."""
    encoded = object_of([batch_of(A, b"1")])
    store = MemoryStore(lambda: 1)
    other = NAME._replace(sequence=8).key
    await store.put(other, encoded.buffers)
    with pytest.raises(CorruptObject, match="its footer is that of"):
        await read_footer(store, other, encoded.size)
    with pytest.raises(CorruptObject, match="fewer than"):
        await read_footer(store, other, encoded.size + 1)
    with pytest.raises(CorruptObject, match="are no object"):
        await read_footer(store, other, 20)


# -- runs


def test_a_run_is_sent_with_its_offsets_and_epoch() -> None:
    """D5: base offset and leader epoch are set in a copy; Kafka's checksum stays right."""
    batches = [batch_of(A, b"a", b"b"), batch_of(A, b"c"), batch_of(A, b"d", b"e")]
    data = memoryview(b"".join(bytes(batch.data) for batch in batches))
    run = run_of(batches, 100)
    found = check_run(data, run)
    assert [batch.base_offset for batch in found] == [100, 102, 103]

    sent = memoryview(place_batches(data, found[1:]))
    first = len(batches[1].data)
    for view, offsets in ((sent[:first], [102]), (sent[first:], [103, 104])):
        assert parse_header(view).leader_epoch == LEADER_EPOCH
        assert [record.offset for record in decode_records(view, size_max=1000)] == offsets
    assert [batch.base_offset for batch in pending_of_run(A, data, found)] == [100, 102, 103]
    assert place_batches(data, []) == b""


@given(position=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_flipped_byte_of_a_run_is_found(position: int, flip: int) -> None:
    """D5: nothing damaged is served (diskless.objects.O5); two fields are set anyway."""
    batches = [batch_of(A, b"abc", b"b"), batch_of(A, b"cdefgh")]
    data = bytearray(b"".join(bytes(batch.data) for batch in batches))
    position %= len(data)
    inside = position if position < len(batches[0].data) else position - len(batches[0].data)
    data[position] ^= flip
    if inside < 8 or 12 <= inside < 16:  # base offset, leader epoch
        check_run(memoryview(data), run_of(batches, 7))
        return
    with pytest.raises(CorruptObject):
        check_run(memoryview(data), run_of(batches, 7))


def test_a_run_that_is_not_what_the_control_plane_says_is_refused() -> None:
    """D5: other bytes, other offsets, another number of batches (diskless.objects.O5)."""
    batches = [batch_of(A, b"abc", b"b"), batch_of(A, b"cdefgh")]
    data = memoryview(b"".join(bytes(batch.data) for batch in batches))
    run = run_of(batches, 7)
    for wrong in (run._replace(size=run.size + 1), run._replace(end_offset=Offset(9)),
                  run._replace(batch_count=1)):
        with pytest.raises(CorruptObject):
            check_run(data, wrong)
    with pytest.raises(CorruptObject, match="no batch"):
        check_run(data[:-1], run._replace(size=run.size - 1))


# -- hostile bytes


@settings(max_examples=200)
@given(position=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_flipped_byte_of_an_object_is_found(position: int, flip: int) -> None:
    """D4: in the header, a batch, the footer or the trailer (diskless.objects.O3)."""
    encoded = object_of([batch_of(A, b"abc"), batch_of(B, b"d", b"e", producer=(1, 0, 5))],
                        receipts=[Receipt(NAME._replace(sequence=6), (5, -1, -9))],
                        notes=[LogNote(A, Offset(1), Offset(2))])
    data = bytearray(stored(encoded))
    position %= len(data)
    data[position] ^= flip
    view = memoryview(data)
    try:
        footer = footer_of(view)
        for batch in footer.batches:
            place = batch.coordinates
            check_batch(view[place.position : place.position + place.size], batch)
    except (CorruptObject, UnknownFormat):
        return
    inside = [position - each.position for each in encoded.coordinates
              if each.position <= position < each.position + each.size]
    assert inside[0] < 8 or 12 <= inside[0] < 16


@given(size=st.integers(0, 1000))
def test_a_truncated_object_is_refused(size: int) -> None:
    """D4: however much of it is there (diskless.objects.O3)."""
    data = stored(object_of([batch_of(A, b"abc"), batch_of(B, b"d")]))
    with pytest.raises(CorruptObject):
        footer_of(memoryview(data)[: size % len(data)])


@given(fault=FOOTER_FAULTS)
def test_counts_of_a_footer_that_do_not_fit_are_refused(fault: tuple[int, int]) -> None:
    """D4: no memory is taken for what is not there (diskless.objects.O3)."""
    encoded = object_of([batch_of(A, b"abc"), batch_of(B, b"d")])
    footer = bytearray(encoded.buffers[-2])
    struct.pack_into(">I", footer, *fault)
    position = encoded.size - len(footer) - TRAILER_SIZE
    with pytest.raises(CorruptObject):
        decode_footer(footer, position=position)


def test_tables_of_a_footer_that_contradict_each_other_are_refused() -> None:
    """D4: each table is checked against the others (diskless.objects.O3, diskless.objects.O4)."""
    encoded = object_of([batch_of(A, b"abc"), batch_of(B, b"d")],
                        receipts=[Receipt(NAME, (1, 2))], notes=[LogNote(A, Offset(1), Offset(2))])
    footer = bytes(encoded.buffers[-2])
    position = encoded.size - len(footer) - TRAILER_SIZE
    logs_at, batches_at = 60, 60 + 48
    receipts_at = batches_at + 84
    numbers_at, notes_at = receipts_at + 32, receipts_at + 48
    for at, kind, value in (
            (4, ">i", -1), (24, ">q", -1), (32, ">q", -2), (2, ">H", 1),
            (logs_at + 16, ">i", -1), (logs_at + 20, ">I", 2), (logs_at + 20, ">I", 0),
            (logs_at + 44, ">I", 2), (logs_at + 44, ">I", 0), (logs_at + 40, ">i", 0),
            (batches_at, ">I", 60), (batches_at, ">I", 80), (batches_at + 4, ">I", 0),
            (batches_at + 8, ">q", -2),
            (receipts_at, ">i", -1), (receipts_at + 28, ">I", 1), (receipts_at + 28, ">I", 3),
            (numbers_at, ">q", (1 << 63) - 1), (notes_at + 20, ">q", 3), (notes_at + 20, ">q", -1)):
        wrong = bytearray(footer)
        struct.pack_into(kind, wrong, at, value)
        with pytest.raises(CorruptObject):
            decode_footer(wrong, position=position)
    with pytest.raises(CorruptObject, match="begins at"):
        decode_footer(footer, position=position + 1)
    assert decode_footer(footer, position=position).name == NAME


def test_whatever_clients_send_is_readable() -> None:
    """D4: odd times, epochs and sequences of a batch do not cost the object its footer."""
    odd = batch_of(A, b"1", producer=(-1, -9, -70), timestamp=-5)
    footer = footer_of(memoryview(stored(object_of([odd]))))
    assert footer.batches[0].coordinates[4:] == (-5, -1, -9, -70)


def test_an_object_of_a_later_format_says_update() -> None:
    """D4: not damage, but bytes of a later version."""
    data = bytearray(stored(object_of([batch_of(A, b"abc")])))
    data[8:10] = struct.pack(">H", 2)
    with pytest.raises(UnknownFormat, match="update"):
        footer_of(memoryview(data))


def test_a_trailer_that_points_outside_is_refused() -> None:
    """D4: whatever the checksums say (diskless.objects.O3)."""
    data = stored(object_of([batch_of(A, b"abc")]))
    for pointer in (FooterPointer(0, 100, 0), FooterPointer(16, 10, 0),
                    FooterPointer(len(data), 100, 0), FooterPointer(16, (1 << 32) - 1, 0)):
        with pytest.raises(CorruptObject):
            footer_of(memoryview(data[:-TRAILER_SIZE] + encode_trailer(pointer)))
    empty = encode_footer(ObjectFooter(NAME, TimestampMs(1)))
    wrong = encode_trailer(FooterPointer(16, len(empty), crc32c(empty) ^ 1))
    with pytest.raises(CorruptObject, match="bad checksum"):
        footer_of(memoryview(data[:HEADER_SIZE] + empty + wrong))


# -- receipts


def test_a_receipt_says_what_became_of_each_batch() -> None:
    """D37: offsets of accepted batches, of duplicates, and refusals (diskless.objects.O1)."""
    accepted = BatchOutcome(base_offset=Offset(0), log_start_offset=Offset(0))
    duplicate = BatchOutcome(base_offset=Offset(40), log_start_offset=Offset(50), is_duplicate=True)
    refused = BatchOutcome(code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    receipt = make_receipt(NAME, [accepted, duplicate, refused])
    assert receipt.offsets == (0, -42, -1)
    assert [duplicate_of(number) for number in receipt.offsets] == [None, 40, None]

    batches = object_of([batch_of(A, b"1", b"2"), batch_of(A, b"3"), batch_of(B, b"4")]).coordinates
    assert make_notes(batches, [accepted, duplicate, refused]) == [
        LogNote(A, Offset(50), Offset(50))]
    assert merge_notes([LogNote(A, Offset(1), Offset(9)), LogNote(A, Offset(3), Offset(5))]) == {
        A: LogNote(A, Offset(3), Offset(9))}


def test_a_note_of_a_duplicate_that_is_gone_is_raised() -> None:
    """D37: an object that no reader takes would be lost for a rebuild (diskless.objects.O3)."""
    data = stored(object_of([], notes=[LogNote(A, Offset(50), Offset(41))]))
    assert footer_of(memoryview(data)).notes == (LogNote(A, Offset(50), Offset(50)),)


def test_receipts_for_objects_that_stay_outlive_their_object() -> None:
    """D37: what is deleted takes no receipt with it that is needed (diskless.objects.O2)."""
    one, two = Receipt(NAME, (1,)), Receipt(NAME._replace(sequence=8), (2,))
    assert receipts_to_keep([one, two, one], lambda name: name == NAME) == [one]
