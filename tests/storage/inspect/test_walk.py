"""A walk through bytes that something has happened to."""

import struct
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.storage.inspect.walk import WalkedBatch, WalkedDamage, find_header, walk
from quipu.wire.record_batch import Record
from quipu.wire.stored_batch import Fault
from tests.storage.inspect.build import LogBuilder, make_header_sound


def log_of(count: int = 4) -> tuple[bytes, list[int]]:
    """A segment of a checkpoint and `count` data batches, and where each batch starts."""
    builder = LogBuilder()
    sizes = [len(builder.bytes())] + [len(builder.data()) for _ in range(count)]
    return builder.bytes(), [sum(sizes[:index]) for index in range(len(sizes) + 1)]


def covers(items: list[WalkedBatch | WalkedDamage], size: int) -> bool:
    position = 0
    for item in items:
        if item.position != position or item.end <= position:
            return False
        position = item.end
    return position == size


def test_a_sound_file_is_all_batches() -> None:
    """T9: every batch, in order, nothing else."""
    data, starts = log_of()

    items = list(walk(memoryview(data)))

    assert [item.position for item in items] == starts[:-1]
    assert all(isinstance(item, WalkedBatch) and item.fault is None for item in items)


def test_a_file_cut_at_every_byte_of_its_last_batch() -> None:
    """T9, T12: the torn tail is reported as too short; what comes before is untouched."""
    data, starts = log_of()
    for size in range(starts[-2] + 1, starts[-1]):
        *sound, torn = walk(memoryview(data)[:size])

        assert [item.position for item in sound] == starts[:-2]
        assert torn == WalkedDamage(starts[-2], size, Fault.TOO_SHORT)


def test_every_flipped_bit_of_a_header_is_passed_over() -> None:
    """T9, T12: damage in the middle costs one batch; the walk goes on at the next."""
    data, starts = log_of()
    for bit in range(8 * 37):  # what the header's checksum covers, and the checksum
        damaged = bytearray(data)
        damaged[starts[2] + bit // 8] ^= 1 << bit % 8

        items = list(walk(memoryview(damaged)))

        assert [item.position for item in items] == starts[:-1]
        assert items[2] == WalkedDamage(starts[2], starts[3], Fault.HEADER_CRC)
        assert all(isinstance(item, WalkedBatch) and item.fault is None
                   for item in items[:2] + items[3:])


def test_every_flipped_bit_of_a_body_is_one_bad_batch() -> None:
    """T9, T12: the header holds, so nothing has to be searched."""
    data, starts = log_of()
    for bit in range(8 * 37, 8 * (starts[3] - starts[2])):
        damaged = bytearray(data)
        damaged[starts[2] + bit // 8] ^= 1 << bit % 8

        items = list(walk(memoryview(damaged)))

        assert [item.position for item in items] == starts[:-1]
        assert [item.fault for item in items] == [None, None, Fault.BODY_CRC, None, None]
        assert [item.fault for item in walk(memoryview(damaged), verify=False)] == [None] * 5


@pytest.mark.parametrize("start", [0, 1, 36, 76, 100])
@pytest.mark.parametrize("size", [1, 16, 77, 300])
def test_zeroed_blocks_are_passed_over(start: int, size: int) -> None:
    """T9, T12: every batch that no zero touches is given."""
    data, starts = log_of(8)
    position = starts[2] + start
    damaged = data[:position] + bytes(size) + data[position + size :]

    items = list(walk(memoryview(damaged)))

    untouched = [at for at, after in pairwise(starts)
                 if after <= position or at >= position + size]
    assert covers(items, len(data))
    sound = [item.position for item in items
             if isinstance(item, WalkedBatch) and item.fault is None]
    assert sound == untouched or damaged == data


def test_junk_before_between_and_after() -> None:
    """T9: batches are found wherever they lie; the junk is given with its place."""
    data, starts = log_of(2)
    junk = b"\x01\x00\x00" * 50  # looks like the start of a header, over and over
    mixed = junk + data[: starts[2]] + junk + data[starts[2] :] + junk

    items = list(walk(memoryview(mixed)))

    assert covers(items, len(mixed))
    assert [isinstance(item, WalkedDamage) for item in items] == [
        True, False, False, True, False, True]


def test_a_batch_of_type_0_is_given_with_its_fault() -> None:
    """T2, T9: the tool finds what no node would write, and goes on behind it."""
    data, starts = log_of()
    damaged = bytearray(data)
    damaged[starts[2] + 4] = 0
    make_header_sound(damaged, starts[2])

    items = list(walk(memoryview(damaged)))

    assert [item.position for item in items] == starts[:-1]
    assert [item.fault for item in items] == [None, None, Fault.UNSET_TYPE, None, None]


def test_batches_inside_a_value_are_not_taken_for_the_logs_own() -> None:
    """T9: a log that was sent as a record, in a batch whose header is then damaged."""
    inner, _ = log_of(2)
    builder = LogBuilder()
    for _ in range(20):
        builder.data()
    start = len(builder.bytes())
    builder.append([Record(None, inner)])
    end = len(builder.bytes())
    builder.data()
    damaged = bytearray(builder.bytes())
    damaged[start + 8] ^= 1

    items = list(walk(memoryview(damaged)))

    assert WalkedDamage(start, end, Fault.HEADER_CRC) in items


def test_a_length_that_points_past_the_end_is_searched_from_its_header() -> None:
    """T9: a sound header with a wild length does not hide the rest of the file."""
    data, starts = log_of()
    damaged = bytearray(data)
    struct.pack_into(">i", damaged, starts[1] + 24, 1 << 20)
    make_header_sound(damaged, starts[1])

    items = list(walk(memoryview(damaged)))

    assert items[1] == WalkedDamage(starts[1], starts[2], Fault.TOO_SHORT)
    assert [item.position for item in items] == starts[:-1]


@given(edits=st.lists(st.tuples(st.integers(0, 600), st.binary(min_size=1, max_size=80)),
                      min_size=1, max_size=4), cut=st.integers(0, 700))
@settings(max_examples=80, deadline=None)
def test_whatever_happened_a_walk_covers_the_file(
    edits: list[tuple[int, bytes]], cut: int
) -> None:
    """T9: no bytes are left out, none are given twice, nothing is raised."""
    # Shows storage.inspect.W1.
    data, _ = log_of()
    damaged = bytearray(data)
    for position, value in edits:
        damaged[position : position + len(value)] = value
    view = memoryview(damaged)[:cut]

    assert covers(list(walk(view)), len(view))


def test_a_search_passes_a_large_hole_quickly() -> None:
    """T9: 64 MiB of zeros are searched by a regular expression, not byte by byte."""
    # Shows storage.inspect.W2.
    builder = LogBuilder()
    hole = bytes(64 << 20)
    data = memoryview(hole + builder.bytes())
    started = time.perf_counter()

    assert find_header(data, 0) == len(hole)
    assert time.perf_counter() - started < 5
