"""Finds records by their time: the run by the control plane, the record in its bytes.

Only batches that may hold the record are decoded; large ones elsewhere than on the event loop.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.reading.blocks import Block, rest_of
from quipu.diskless.values import BatchRun, LogKey
from quipu.model.errors import RequestError
from quipu.model.ids import Epoch, Offset, TimestampMs
from quipu.model.partition_log import RunLong, TimestampAndOffset
from quipu.wire.record_batch import (
    DECOMPRESSED_SIZE_MAX,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    parse_header,
)
from quipu.wire.record_check import decompress_records
from quipu.wire.records import find_time

SHORT_SIZE: Final = 64 << 10  # bytes of batches that are searched at once
_UNREADABLE: Final = -2


class TimeSearch:
    """A search in one log, from its diskless start on."""

    def __init__(
        self, log: LogKey, plane: ControlPlane, *,
        start: Callable[[], Awaitable[Offset | None]], load: Callable[[BatchRun], Awaitable[Block]],
        run_long: RunLong,
    ) -> None:
        self._log = log
        self._plane = plane
        self._start = start
        self._load = load
        self._run_long = run_long

    async def find(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record that is not before a time."""
        start = await self._start()
        if start is None:
            return None
        at = start
        while True:
            run = await self._plane.find_timestamp(self._log, timestamp_ms, from_offset=at)
            if run is None:
                return None
            found = await self._search(run, timestamp_ms, start)
            if found is not None:
                return found
            at = run.end_offset  # its record is below the start

    async def find_max(self) -> TimestampAndOffset | None:
        """The first of the records with the largest timestamp."""
        start = await self._start()
        if start is None:
            return None
        best: TimestampAndOffset | None = None
        at = start
        while True:
            run = await self._plane.find_max_timestamp(self._log, from_offset=at)
            if run is None or (best is not None and run.max_timestamp <= best.timestamp):
                return best
            found = await self._search(run, run.max_timestamp, start)
            if found is not None:
                return found
            # The newest record of this run is below the start: the rest of it may have the next.
            best = await self._newest(run, start)
            at = run.end_offset

    async def _newest(self, run: BatchRun, start: Offset) -> TimestampAndOffset | None:
        """The first of the newest records of one run, from `start` on, by bisection of times."""
        low, high = -1, int(run.max_timestamp)
        best: TimestampAndOffset | None = None
        while low <= high:
            middle = (low + high) // 2
            found = await self._search(run, middle, start)
            if found is None:
                high = middle - 1
            else:
                best, low = found, max(middle, found.timestamp) + 1
        return best

    async def _search(
        self, run: BatchRun, timestamp_ms: int, start: Offset
    ) -> TimestampAndOffset | None:
        async for block in self._blocks(run):
            if block.end_offset <= start:
                continue
            search = partial(_find_time, block.batches_from(start), timestamp_ms, start)
            found = search() if block.size <= SHORT_SIZE else await self._run_long(search)
            if found is not None:
                return found
        return None

    async def _blocks(self, run: BatchRun) -> AsyncIterator[Block]:
        rest: BatchRun | None = run
        while rest is not None:
            block = await self._load(rest)
            yield block
            rest = rest_of(rest, block)


def _find_time(
    data: memoryview, timestamp_ms: int, start: Offset
) -> TimestampAndOffset | None:
    """The first record from `start` on that is not before a time, in checked batches."""
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        end = position + header.size
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start:
            found = _find_record(header, data[position:end], timestamp_ms, start)
            if found is not None:
                return found
        position = end
    return None


def _find_record(
    header: BatchHeader, batch: memoryview, timestamp_ms: int, start: Offset
) -> TimestampAndOffset | None:
    if not header.attributes & LOG_APPEND_TIME_BIT:
        try:
            records = decompress_records(batch, DECOMPRESSED_SIZE_MAX)
        except RequestError:
            delta = _UNREADABLE
        else:
            body, position = (batch, HEADER_SIZE) if records is None else (records, 0)
            delta, timestamp = find_time(
                body, position, header.count, header.base_timestamp, wanted=timestamp_ms,
                first_delta=max(0, start - header.base_offset))
            if delta >= 0:
                return TimestampAndOffset(TimestampMs(timestamp),
                                          Offset(header.base_offset + delta),
                                          Epoch(header.leader_epoch))
        if delta != _UNREADABLE:
            return None
    # One time holds for all of its records; or they cannot be read by clients either: the batch.
    return TimestampAndOffset(TimestampMs(header.max_timestamp),
                              Offset(max(header.base_offset, start)),
                              Epoch(header.leader_epoch))
