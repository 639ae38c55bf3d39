"""Records by time: the exact record, in whatever order timestamps come."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.batch_types import CONFIGURATION
from quipu.model.ids import Epoch, Offset
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.segments import timestamps
from quipu.wire.record_batch import (
    Record,
    encode_batch,
    parse_header,
    set_log_append_time,
)
from quipu.wire.records import TimeFound
from tests.storage.builders import (
    NOW_MS,
    SMALL,
    data_disk,
    find_timestamp,
    newest_record,
    open_log,
)


def append_times(log: Log, times: list[int], *, compression: int = 0, append_time: int = 0) -> None:
    batch = memoryview(encode_batch([Record(None, b"v", timestamp=time) for time in times],
                                    compression=compression))
    header = set_log_append_time(batch, append_time) if append_time else parse_header(batch)
    log.append(batch, header, epoch=Epoch(0), now_ms=NOW_MS)


@settings(max_examples=50)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=25),
    wanted=st.integers(0, 65),
    start=st.integers(0, 30),
    compression=st.integers(0, 4),
)
def test_the_first_record_that_is_not_older_is_found(
    batches: list[list[int]], wanted: int, start: int, compression: int
) -> None:
    """T5, K2: as a plain search over all records finds it, internal batches in between."""
    log = open_log(data_disk(), SMALL)
    for times in batches:
        append_times(log, times, compression=compression)
        log.append_records(CONFIGURATION, [Record(None, b"c", timestamp=1000)], epoch=Epoch(0),
                           now_ms=NOW_MS)
    log.delete_records(Offset(min(start, log.end_offset)), NOW_MS)
    records = list(enumerate(time for times in batches for time in times))
    kept = [(time, offset) for offset, time in records if offset >= log.log_start_offset]
    newer = [item for item in kept if item[0] >= wanted]
    found = find_timestamp(log, wanted)
    assert (found[:2] if found else None) == (newer[0] if newer else None)
    newest = newest_record(log)
    first_newest = min(kept, key=lambda item: (-item[0], item[1])) if kept else None
    assert (newest[:2] if newest else None) == first_newest


def test_log_append_time_finds_the_first_record_of_the_batch() -> None:
    """K2: all records of such a batch have one time, whatever they say themselves."""
    log = open_log(data_disk())
    append_times(log, [5, 6], append_time=100)
    append_times(log, [7, 8, 9], append_time=200)
    assert find_timestamp(log, 7) == (100, 0, 0)
    assert find_timestamp(log, 101) == (200, 2, 0)
    assert find_timestamp(log, 201) is None
    assert newest_record(log) == (200, 2, 0)
    log.delete_records(Offset(3), NOW_MS)
    assert find_timestamp(log, 7) == (200, 3, 0)


def test_records_that_cannot_be_decoded_are_found_as_a_batch() -> None:
    """K2, K8: a client may have sent anything; the look-up returns the start of its batch."""
    log = open_log(data_disk(), LogConfig())
    batch = encode_batch([Record(None, b"v", timestamp=50)])
    header = parse_header(memoryview(batch))
    garbage = memoryview(bytearray(batch[:61] + b"\xff" * (len(batch) - 61)))
    log.append(garbage, header, epoch=Epoch(0), now_ms=NOW_MS)
    found = find_timestamp(log, 40)
    assert found is not None
    assert found[:2] == (50, 0)


@pytest.mark.parametrize("count", [1, 100])
def test_records_without_a_time_are_not_found(count: int) -> None:
    """K2: -1 is no time."""
    log = open_log(data_disk())
    for _ in range(count):
        append_times(log, [-1])
    assert find_timestamp(log, 0) is None
    assert newest_record(log) is None


# --- the looks of a search ---------------------------------------------------------------------


def test_a_search_looks_into_no_batch_by_itself() -> None:
    """K8: it yields the batch to look at, and returns what that look has found."""
    log = open_log(data_disk(), LogConfig())
    for start in range(0, 100, 10):
        append_times(log, [start, start + 3, start + 1], compression=4)
    search = log.search_timestamp(52)
    look = next(search)
    assert look is not None
    assert look.batch.header.base_offset == 15
    assert look.run() == (1, 53)
    assert look.size_max >= 3 * 8
    with pytest.raises(StopIteration) as stopped:
        search.send(look.run())
    assert stopped.value.value[:2] == (53, 16)


def test_a_long_walk_over_headers_is_made_in_turns() -> None:
    """K8: of a segment whose beginning was deleted, where every header has to be looked at."""
    log = open_log(data_disk(), LogConfig(segment_bytes=1 << 24))
    count = 5 * timestamps.HEADERS_PER_TURN
    for number in range(count):
        append_times(log, [number % 100])
    log.delete_records(Offset(5), NOW_MS)
    turns = sum(step is None for step in steps(log.search_newest()))
    assert turns >= 4
    assert newest_record(log) == (99, 99, 0)


def steps(search: timestamps.Search) -> list[timestamps.Look | None]:
    """Carry out all looks of a search."""
    found: list[timestamps.Look | None] = []
    outcome: TimeFound | None = None
    while True:
        try:
            found.append(search.send(outcome))
        except StopIteration:
            return found
        outcome = None if found[-1] is None else found[-1].run()


def test_segments_that_go_while_a_search_waits_are_passed_over() -> None:
    """K8: retention does not wait for searches."""
    log = open_log(data_disk(), SMALL)
    for number in range(60):
        append_times(log, [number])
    search = log.search_timestamp(10)
    look = next(search)
    assert look is not None
    log.delete_records(Offset(40), NOW_MS)
    log.apply_retention(NOW_MS)
    assert len(log.segments) < 30
    outcome = TimeFound(-1, -1)  # as if it had not been there
    found = None
    try:
        while True:
            look = search.send(outcome)
            outcome = None if look is None else look.run()  # type: ignore[assignment]
    except StopIteration as stopped:
        found = stopped.value
    assert found is not None
    assert found.offset == found.timestamp >= 10


@pytest.mark.parametrize("compression", range(5))
def test_a_damaged_batch_is_found_as_a_batch(compression: int) -> None:
    """T12, K2: its records are not trusted where its checksum does not hold."""
    disk = data_disk()
    log = open_log(disk, LogConfig())
    batch = memoryview(encode_batch([Record(None, b"v" * 50, timestamp=time) for time in (5, 9)],
                                    compression=compression))
    header = parse_header(batch)
    damaged = memoryview(bytearray(batch))
    damaged[-1] ^= 1
    log.append(damaged, header, epoch=Epoch(0), now_ms=NOW_MS)
    assert find_timestamp(log, 7) == (9, 0, 0)


@pytest.mark.parametrize("compression", range(1, 5))
def test_a_batch_beyond_the_limit_is_found_as_a_batch(compression: int) -> None:
    """K8: of an older version, or of a topic whose settings disable the checks."""
    log = open_log(data_disk(), LogConfig())
    batch = memoryview(encode_batch(
        [Record(None, bytes(1 << 20), timestamp=time) for time in (5, 9)], compression=compression))
    log.append(batch, parse_header(batch), epoch=Epoch(0), now_ms=NOW_MS)
    assert timestamps.run(log.search_timestamp(7), 1 << 20) == (9, 0, 0)
    assert find_timestamp(log, 7) == (9, 1, 0)
