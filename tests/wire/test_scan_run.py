"""Runs of plain batches: the compiled and the plain walk are held to the same results.

Where nothing is compiled, `scan_run` is the plain function, and these tests hold for it alone.
"""

import os
import subprocess
import sys
from struct import pack_into
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.batch_types import CONFIGURATION, DATA
from quipu.wire import _scan_pure
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.scan_run import (
    BATCHES_KEPT,
    PRODUCERS_MAX,
    Expected,
    Run,
    scan_run,
    sound_end,
)
from quipu.wire.stored_batch import COVERED_END, STORED_HEADER_SIZE, pack_prefix

EPOCH = 3
FIRST = Expected(100, 70, EPOCH)
COVERED_FIELDS = {"type": 4, "layout": 5, "reserved": 6, "log_offset": 15, "base_offset": 23,
                  "batch_length": 27, "leader_epoch": 31, "magic": 32, "crc": 36}


class Made(NamedTuple):
    """A run of batches as they were written."""

    data: bytes
    positions: list[int]  # of each batch, and the end


class Item(NamedTuple):
    """One batch to write."""

    count: int = 1
    value_size: int = 5
    timestamp: int = 1000
    producer: tuple[int, int, int] = (-1, -1, -1)  # id, epoch, sequence


def written(items: list[Item], first: Expected = FIRST) -> Made:
    data, positions = bytearray(), []
    log_offset, offset, epoch = first
    for item in items:
        positions.append(len(data))
        batch = encode_batch(
            [Record(None, b"v" * item.value_size, timestamp=item.timestamp)] * item.count,
            base_offset=offset, leader_epoch=epoch, producer_id=item.producer[0],
            producer_epoch=item.producer[1], base_sequence=item.producer[2])
        data += pack_prefix(batch, batch_type=DATA, log_offset=log_offset) + batch
        log_offset, offset = log_offset + item.count, offset + item.count
    return Made(bytes(data), [*positions, len(data)])


def run_of(
    data: bytes | bytearray, position: int = 0, expected: Expected = FIRST,
    *, mark_due: int = 0, mark_interval: int = 300,
) -> Run:
    """What both walks give; they must agree."""
    options: dict[str, Any] = {"mark_due": mark_due, "mark_interval": mark_interval}
    run = scan_run(memoryview(data), position, expected, **options)
    assert run == _scan_pure.scan_run(memoryview(data), position, expected, **options)
    return run


def seal(data: bytearray, position: int) -> None:
    """Make the header checksum of the batch at `position` right again."""
    covered = bytes(data[position + 4 : position + COVERED_END])
    pack_into(">I", data, position, crc32c(covered))


def seal_body(data: bytearray, position: int, end: int) -> None:
    pack_into(">I", data, position + 33, crc32c(bytes(data[position + COVERED_END : end])))
    seal(data, position)


producer_ids = st.sampled_from([-1, -1, 0, 1, 1024, 2048, 2**63 - 1])
items = st.builds(
    Item, count=st.integers(1, 3), value_size=st.sampled_from([0, 5, 900, 1100, 5000]),
    timestamp=st.integers(0, 2000),
    producer=st.tuples(producer_ids, st.sampled_from([0, 0, 0, 1]), st.integers(0, 2**31 - 1)))


def plain_count(batches: list[Item]) -> int:
    """How many of these a run takes: until a producer's epoch changes."""
    epochs: dict[int, int] = {}
    for number, item in enumerate(batches):
        producer_id, epoch, _ = item.producer
        if producer_id >= 0 and epochs.setdefault(producer_id, epoch) != epoch:
            return number
    return len(batches)


@given(batches=st.lists(items, max_size=20), due=st.integers(-10, 2000),
       interval=st.integers(0, 700), before=st.binary(max_size=9))
@settings(max_examples=150, deadline=None)
def test_a_run_is_the_sum_of_its_batches(
    batches: list[Item], due: int, interval: int, before: bytes
) -> None:
    """T8, T12: ends, newest timestamp, marks and producers, compared with what was written."""
    made = written(batches)
    run = run_of(before + made.data, len(before), mark_due=due, mark_interval=interval)
    taken = batches[: plain_count(batches)]
    records = sum(item.count for item in taken)
    assert run.end == len(before) + made.positions[len(taken)]
    assert (run.log_end, run.end_offset) == (FIRST.log_offset + records, FIRST.offset + records)
    assert run.max_timestamp == max((item.timestamp for item in taken), default=-1)

    marks, producers, sequence = [], {}, 0
    newest = -1
    for item, position in zip(taken, made.positions, strict=False):
        at = position + len(before)
        if at >= due:
            marks.append((FIRST.offset + sequence, FIRST.log_offset + sequence, at, newest))
            due = at + interval
        producer_id, epoch, first = item.producer
        if producer_id >= 0:
            producers.setdefault(producer_id, (producer_id, epoch, []))[2].append(
                (first, item.count - 1, FIRST.offset + sequence))
        newest, sequence = max(newest, item.timestamp), sequence + item.count
    assert run.marks == marks
    assert run.producers == [(producer_id, epoch, seen[-BATCHES_KEPT:])
                             for producer_id, epoch, seen in producers.values()]


THREE = [Item(2), Item(1, producer=(7, 0, 4)), Item(3, 40)]


def test_a_run_cut_at_any_byte_ends_at_the_last_whole_batch() -> None:
    """T12: nothing behind the end of the buffer is read or believed."""
    made = written(THREE)
    for size in range(len(made.data) + 1):
        want = max(position for position in made.positions if position <= size)
        assert run_of(made.data[:size]).end == want, size


def test_any_flipped_bit_ends_the_run_before_its_batch() -> None:
    """T8, T12: every bit of header and body is covered by one of the two checksums."""
    made = written(THREE)
    _, second, third, _ = made.positions
    for byte in range(second, third):
        for bit in range(8):
            data = bytearray(made.data)
            data[byte] ^= 1 << bit
            run = run_of(data)
            assert (run.end, run.log_end, run.producers) == (second, FIRST.log_offset + 2, [])


@pytest.mark.parametrize("field", COVERED_FIELDS)
def test_a_field_that_is_not_as_expected_ends_the_run_even_if_its_checksum_is_right(
    field: str,
) -> None:
    """T2, T8: other types, layouts, epochs, lengths and gaps are left to the careful way."""
    made = written(THREE)
    second = made.positions[1]
    for bit in range(8):
        data = bytearray(made.data)
        data[second + COVERED_FIELDS[field]] ^= 1 << bit
        seal(data, second)
        assert run_of(data).end == second


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_headers_with_right_checksums_are_judged_alike(data: st.DataObject) -> None:
    """T8: any bytes in a header, sealed: both walks go as far."""
    batches = data.draw(st.lists(items, min_size=1, max_size=6))
    made = written(batches)
    number = data.draw(st.integers(0, len(batches) - 1))
    position, end = made.positions[number], made.positions[number + 1]
    changed = bytearray(made.data)
    start = data.draw(st.integers(4, STORED_HEADER_SIZE - 1))
    for index, byte in enumerate(data.draw(st.binary(min_size=1, max_size=8))):
        if start + index < STORED_HEADER_SIZE and not 33 <= start + index < 37:
            changed[position + start + index] = byte
    seal_body(changed, position, end)
    run_of(changed, mark_interval=data.draw(st.integers(0, 500)))


@pytest.mark.parametrize("expected", [
    Expected(101, 70, EPOCH), Expected(100, 71, EPOCH), Expected(100, 70, EPOCH + 1),
    Expected(100, 70, -1), Expected(2**62 + 1, 70, EPOCH), Expected(100, 2**70, EPOCH),
])
def test_a_batch_that_is_not_the_next_is_not_taken(expected: Expected) -> None:
    """T5: both offsets and the epoch continue what was before."""
    assert run_of(written(THREE).data, expected=expected) == Run(
        0, expected.log_offset, expected.offset, -1, [], [])


def test_offsets_far_out_are_left_to_the_careful_way() -> None:
    """T5: where sums could overflow nothing is summed, by either walk."""
    for first, is_taken in ((2**62, True), (2**62 + 1, False), (2**63 - 3, False)):
        expected = Expected(first, first, EPOCH)
        run = run_of(written([Item()], expected).data, expected=expected)
        assert (run.end > 0) == is_taken
    below = Expected(2**62 - 1, 5, EPOCH)
    made = written([Item(2), Item()], below)
    assert run_of(made.data, expected=below).end == made.positions[1]


def test_negative_offsets_are_never_plain() -> None:
    """T5: the scan of single batches reports the fault."""
    for expected in (Expected(-5, 70, EPOCH), Expected(5, -70, EPOCH)):
        assert run_of(written([Item(9)], expected).data, expected=expected).end == 0


def test_another_type_ends_the_run() -> None:
    """T5, T11: internal batches take no client offsets, so they are not summed."""
    made = written(THREE)
    batch = encode_batch([Record(None, b"c", timestamp=1)], base_offset=76, leader_epoch=EPOCH)
    data = made.data + pack_prefix(batch, batch_type=CONFIGURATION, log_offset=106) + batch
    assert run_of(data).end == len(made.data)


def test_only_so_many_producers_are_in_a_run() -> None:
    """T12: the memory of a run is bounded; the next run goes on where it ended."""
    batches = [Item(producer=(number * 1024, 0, 9)) for number in range(PRODUCERS_MAX + 3)]
    made = written([*batches, batches[0]])
    run = run_of(made.data)
    assert run.end == made.positions[PRODUCERS_MAX]
    assert len(run.producers) == PRODUCERS_MAX
    rest = run_of(made.data, run.end, Expected(run.log_end, run.end_offset, EPOCH))
    assert rest.end == len(made.data)


def test_the_plain_walk_serves_when_asked_for() -> None:
    """K2: QUIPU_PURE=1 chooses it."""
    program = "from quipu.wire import scan_run; print(scan_run.COMPILED)"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                            text=True, env={**os.environ, "QUIPU_PURE": "1"})
    assert answer.stdout.strip() == "False"


@given(items=st.lists(st.builds(
    Item, count=st.integers(1, 3), value_size=st.sampled_from([0, 5, 900, 40_000]),
    timestamp=st.just(1000), producer=st.just((-1, -1, -1))), max_size=6),
    data=st.data())
def test_where_sound_batches_end_is_the_same_compiled_and_plain(
    items: list[Item], data: st.DataObject
) -> None:
    """T12: of any type and size, whole or with one byte changed, up to any end."""
    made = written(items)
    stored = bytearray(made.data)
    if stored and data.draw(st.booleans()):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.integers(0, len(stored)))
    found = sound_end(memoryview(stored), 0, end, FIRST.log_offset)
    assert found == _scan_pure.sound_end(memoryview(stored), 0, end, FIRST.log_offset)
    assert found[0] in made.positions
    if bytes(stored) == made.data:
        assert found[0] >= end
        assert found[1] == FIRST.log_offset + sum(
            item.count for item, at in zip(items, made.positions, strict=False) if at < end)
    else:
        changed = next(at for at in range(len(stored)) if stored[at] != made.data[at])
        assert found[0] <= changed or found[0] >= end
