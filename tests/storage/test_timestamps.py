"""Records by time: the exact record, in whatever order timestamps come."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.batch_types import CONFIGURATION
from quipu.model.ids import Epoch, Offset
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.wire.record_batch import (
    Record,
    encode_batch,
    parse_header,
    set_log_append_time,
)
from tests.storage.builders import NOW_MS, SMALL, data_disk, open_log


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
    found = log.find_timestamp(wanted)
    assert (found[:2] if found else None) == (newer[0] if newer else None)
    newest = log.max_timestamp()
    first_newest = min(kept, key=lambda item: (-item[0], item[1])) if kept else None
    assert (newest[:2] if newest else None) == first_newest


def test_log_append_time_finds_the_first_record_of_the_batch() -> None:
    """K2: all records of such a batch have one time, whatever they say themselves."""
    log = open_log(data_disk())
    append_times(log, [5, 6], append_time=100)
    append_times(log, [7, 8, 9], append_time=200)
    assert log.find_timestamp(7) == (100, 0, 0)
    assert log.find_timestamp(101) == (200, 2, 0)
    assert log.find_timestamp(201) is None
    assert log.max_timestamp() == (200, 2, 0)
    log.delete_records(Offset(3), NOW_MS)
    assert log.find_timestamp(7) == (200, 3, 0)


def test_records_that_cannot_be_decoded_are_found_as_a_batch() -> None:
    """K2, K8: a client may have sent anything; the look-up answers with its batch."""
    log = open_log(data_disk(), LogConfig())
    batch = encode_batch([Record(None, b"v", timestamp=50)])
    header = parse_header(memoryview(batch))
    garbage = memoryview(bytearray(batch[:61] + b"\xff" * (len(batch) - 61)))
    log.append(garbage, header, epoch=Epoch(0), now_ms=NOW_MS)
    found = log.find_timestamp(40)
    assert found is not None
    assert found[:2] == (50, 0)


@pytest.mark.parametrize("count", [1, 100])
def test_records_without_a_time_are_not_found(count: int) -> None:
    """K2: -1 is no time."""
    log = open_log(data_disk())
    for _ in range(count):
        append_times(log, [-1])
    assert log.find_timestamp(0) is None
    assert log.max_timestamp() is None
