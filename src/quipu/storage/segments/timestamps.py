"""Records by time: the first that is as new as a timestamp, or the newest.

Headers say which batch a record is in; to find the record, the batch must be decompressed and
walked, which may take long.  So a search does not do that itself.  It is a generator that yields a
`Look` at one batch, and is sent the outcome; or it yields None after many headers, so that the loop
can turn.  `run` does all of it at once; the broker does large looks in threads.

Not here: where batches lie (reading.py), the walk over records (wire/records.py).
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from quipu.model.batch_types import DATA
from quipu.model.errors import RequestError
from quipu.model.ids import Epoch, Offset, TimestampMs
from quipu.model.partition_log import TimestampAndOffset
from quipu.runtime.disks.disk import NotFound
from quipu.storage.segments.reading import StoredBatch, walk
from quipu.storage.segments.segment import Segment
from quipu.wire.record_batch import HEADER_SIZE, LOG_APPEND_TIME_BIT
from quipu.wire.record_check import decompress_records, decompressed_size_max
from quipu.wire.records import TimeFound, find_time
from quipu.wire.stored_batch import check_body

DECOMPRESSED_SIZE_MAX: Final = 256 << 20  # the most that a topic's settings allow
HEADERS_PER_TURN: Final = 256
UNREADABLE: Final = -2
_NEVER: Final = (1 << 63) - 1  # a time that no record has


class Look(NamedTuple):
    """A look into one batch for a record at or after an offset that is as new as a time."""

    batch: StoredBatch
    wanted: int
    start_offset: int

    @property
    def size_max(self) -> int:
        """Bytes of records that may have to be gone through."""
        return decompressed_size_max(self.batch.batch)

    def run(self, size_max: int = DECOMPRESSED_SIZE_MAX) -> TimeFound:
        """Look; `UNREADABLE` for a batch that cannot be read, or exceeds `size_max` bytes."""
        header, data = self.batch.header, self.batch.batch
        first = max(0, self.start_offset - header.base_offset)
        if check_body(self.batch.data, 0, header) is not None:
            return TimeFound(UNREADABLE, -1)
        try:
            records = decompress_records(data, size_max)
        except RequestError:
            return TimeFound(UNREADABLE, -1)
        if records is None:
            return find_time(data, HEADER_SIZE, header.count, header.base_timestamp,
                             wanted=self.wanted, first_delta=first)
        return find_time(records, 0, header.count, header.base_timestamp, wanted=self.wanted,
                         first_delta=first)


Search = Generator[Look | None, TimeFound | None, TimestampAndOffset | None]


def run(
    search: Search, size_max: int = DECOMPRESSED_SIZE_MAX
) -> TimestampAndOffset | None:
    """Carry out all looks of `search` at once."""
    outcome: TimeFound | None = None
    while True:
        try:
            look = search.send(outcome)
        except StopIteration as stop:
            found: TimestampAndOffset | None = stop.value
            return found
        outcome = None if look is None else look.run(size_max)


def find_timestamp(segments: Sequence[Segment], timestamp: int, *, start_offset: int) -> Search:
    """The first record at or after `start_offset` that is as new as `timestamp`."""
    for segment in list(segments):
        if segment.max_timestamp < timestamp:
            continue
        try:
            found = yield from _find_in(segment, timestamp, start_offset)
        except NotFound:
            if segment in segments:
                raise
            continue  # retention took it meanwhile
        if found is not None:
            return found
    return None


def find_newest(segments: Sequence[Segment], *, start_offset: int) -> Search:
    """The first of the newest records at or after `start_offset`."""
    newest = yield from _newest(list(segments), start_offset)
    if newest < 0:
        return None
    return (yield from find_timestamp(segments, newest, start_offset=start_offset))


def _find_in(segment: Segment, timestamp: int, start_offset: int) -> Search:
    for number, batch in enumerate(walk(segment, segment.find_timestamp(timestamp)), 1):
        header = batch.header
        if (header.batch_type == DATA and header.max_timestamp >= timestamp
                and header.next_offset > start_offset):
            found = yield from _find_record(batch, timestamp, start_offset)
            if found is not None:
                return found
        if number % HEADERS_PER_TURN == 0:
            yield None
    return None


def _find_record(batch: StoredBatch, timestamp: int, start_offset: int) -> Search:
    header, epoch = batch.header, Epoch(batch.header.leader_epoch)
    first = Offset(max(header.base_offset, start_offset))
    if not header.attributes & LOG_APPEND_TIME_BIT:
        found = yield Look(batch, timestamp, start_offset)
        assert found is not None
        if found.offset_delta >= 0:
            return TimestampAndOffset(TimestampMs(found.timestamp),
                                      Offset(header.base_offset + found.offset_delta), epoch)
        if found.offset_delta != UNREADABLE:
            return None
    # One time holds for all of its records; or they cannot be read by clients either: the batch.
    return TimestampAndOffset(TimestampMs(header.max_timestamp), first, epoch)


def _newest(
    segments: Sequence[Segment], start_offset: int
) -> Generator[Look | None, TimeFound | None, int]:
    """The largest timestamp of records at or after `start_offset`; -1 if there are none."""
    newest = -1
    for number, segment in enumerate(segments, 1):
        if number < len(segments) and segments[number].base_offset <= start_offset:
            continue
        if segment.base_offset >= start_offset:
            newest = max(newest, segment.max_timestamp)
            continue
        for count, batch in enumerate(walk(segment, segment.find_offset(start_offset)), 1):
            header = batch.header  # partly deleted
            if header.batch_type == DATA and header.next_offset > start_offset:
                newest = max(newest, (yield from _newest_in(batch, start_offset)))
            if count % HEADERS_PER_TURN == 0:
                yield None
    return newest


def _newest_in(
    batch: StoredBatch, start_offset: int
) -> Generator[Look | None, TimeFound | None, int]:
    """The largest timestamp of the records of one batch at or after `start_offset`."""
    header = batch.header
    if header.base_offset >= start_offset or header.attributes & LOG_APPEND_TIME_BIT:
        return header.max_timestamp
    found = yield Look(batch, _NEVER, start_offset)
    assert found is not None
    return header.max_timestamp if found.offset_delta == UNREADABLE else found.timestamp
