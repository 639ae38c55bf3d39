"""Finds a record by its time among the batches of one chunk.

The headers say which batch a record is in; the record itself is found by decompressing that batch.
Runs in a thread: the batches of one entry of the index are walked, not those of a whole segment.
"""

from typing import Final, NamedTuple

from quipu.model.batch_types import DATA
from quipu.model.errors import RequestError
from quipu.model.ids import Epoch, Offset, TimestampMs
from quipu.model.partition_log import TimestampAndOffset
from quipu.wire.record_batch import HEADER_SIZE, LOG_APPEND_TIME_BIT
from quipu.wire.record_check import decompress_records
from quipu.wire.records import find_time
from quipu.wire.stored_batch import StoredHeader, kafka_batch, parse_stored

DECOMPRESSED_SIZE_MAX: Final = 256 << 20  # the most that a topic's settings allow
UNREADABLE: Final = -2


class TimeWanted(NamedTuple):
    """A search for a record at or after an offset that is as new as a time."""

    timestamp: int
    start_offset: int


def find_time_in(
    data: memoryview, position: int, wanted: TimeWanted
) -> TimestampAndOffset | None:
    """The first such record in the batches of `data`, checked before, from `position` on."""
    while position < len(data):
        header = parse_stored(data, position)
        if (header.batch_type == DATA and header.max_timestamp >= wanted.timestamp
                and header.next_offset > wanted.start_offset):
            found = _find_record(header, kafka_batch(data, position, header), wanted)
            if found is not None:
                return found
        position += header.size
    return None


def _find_record(
    header: StoredHeader, batch: memoryview, wanted: TimeWanted
) -> TimestampAndOffset | None:
    epoch = Epoch(header.leader_epoch)
    if not header.attributes & LOG_APPEND_TIME_BIT:
        first = max(0, wanted.start_offset - header.base_offset)
        try:
            records = decompress_records(batch, DECOMPRESSED_SIZE_MAX)
        except RequestError:
            delta = UNREADABLE
        else:
            body, start = (batch, HEADER_SIZE) if records is None else (records, 0)
            delta, timestamp = find_time(
                body, start, header.count, header.base_timestamp, wanted=wanted.timestamp,
                first_delta=first)
            if delta >= 0:
                return TimestampAndOffset(TimestampMs(timestamp),
                                          Offset(header.base_offset + delta), epoch)
        if delta != UNREADABLE:
            return None
    # One time holds for all of its records; or they cannot be read by clients either: the batch.
    return TimestampAndOffset(TimestampMs(header.max_timestamp),
                              Offset(max(header.base_offset, wanted.start_offset)), epoch)
