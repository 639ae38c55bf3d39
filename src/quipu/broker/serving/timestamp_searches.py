"""The searches by timestamp of a ListOffsets request, within time limits.

Not here: how one partition is searched (partitions/time_lookup.py, partitions/tiered_reads.py).
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import Offset
from quipu.model.partition_log import PartitionLog, TimestampAndOffset
from quipu.runtime.spawn import spawn
from quipu.wire.messages.k02_list_offsets import ListOffsetsPartitionResponse

NEWEST: Final = -3  # in place of a timestamp: the largest
CHECK_SECONDS: Final = 0.5  # after which it is checked that the client is still there
VERSION_TIMEOUT: Final = 10  # from this version on, requests have a timeout of their own


class TimestampSearch(NamedTuple):
    """A search by timestamp, and the result that it will fill."""

    result: ListOffsetsPartitionResponse
    partition: PartitionLog
    timestamp: int
    end: Offset  # clients see no record from here on


async def search(
    broker: Broker, searches: list[TimestampSearch], context: Context, *, timeout_ms: int
) -> None:
    """Carry out the searches, equal ones once, and fill their results.

    Those that begin in the remote tier wait for it at the same time, no more of them than it serves
    at a time (remote.log.reader.threads); others are carried out one after the other.  One in the
    tier may take `timeout_ms`, as the request says, and no longer than
    remote.list.offsets.request.timeout.ms.
    """
    wanted: dict[tuple[PartitionLog, int], list[TimestampSearch]] = {}
    for each in searches:
        wanted.setdefault((each.partition, each.timestamp), []).append(each)
    longest_ms = broker.cluster.settings.remote_list_offsets_request_timeout_ms
    if context.api_version >= VERSION_TIMEOUT and timeout_ms > 0:
        longest_ms = min(longest_ms, timeout_ms)
    deadline = broker.clock.monotonic() + broker.settings.request_max_wait_ms / 1000
    at_once = broker.cluster.settings.remote_log_reader_threads
    running: set[asyncio.Task[None]] = set()
    try:
        for (partition, _), equal in wanted.items():
            await _pause(context)
            is_remote = partition.log_start_offset < partition.local_start_offset
            work = _carry_out(broker, equal, deadline, longest_ms / 1000 if is_remote else None)
            if not is_remote:
                await work
                continue
            running.add(spawn(work, f"search by timestamp in {partition.topic_partition}"))
            while len(running) >= at_once:
                running = await _some_done(running, context)
        while running:
            running = await _some_done(running, context)
    finally:
        for task in running:
            task.cancel()


async def _pause(context: Context) -> None:
    if context.budget is not None:
        await context.budget.pause()  # raises if the client is gone


async def _some_done(
    running: set[asyncio.Task[None]], context: Context
) -> set[asyncio.Task[None]]:
    """Those that still run, once one has ended or a moment has passed."""
    done, left = await asyncio.wait(
        running, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # raises what no search should
    await _pause(context)
    return left


async def _carry_out(
    broker: Broker, equal: Sequence[TimestampSearch], deadline: float, seconds: float | None
) -> None:
    """Carry out a search within `seconds`, and fill the results of all that are equal to it."""
    partition, timestamp = equal[0].partition, equal[0].timestamp
    run_long = broker.workers.run_patiently  # broker.serving.W3
    try:
        if broker.clock.monotonic() > deadline:
            raise RequestError("searches by timestamp take too long: ask for fewer at a time",
                               code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY)
        async with asyncio.timeout(seconds):
            found = await (partition.find_max_timestamp(run_long) if timestamp == NEWEST
                           else partition.find_timestamp(timestamp, run_long))
        for each in equal:
            _fill_found(each.result, each.end, found)
    except TimeoutError:
        _fail(equal, Code.REQUEST_TIMED_OUT)
    except QuipuError as error:
        _fail(equal, code_of(error))


def _fail(searches: Sequence[TimestampSearch], code: int) -> None:
    for each in searches:
        each.result.error_code = code


def _fill_found(
    result: ListOffsetsPartitionResponse, end: Offset, found: TimestampAndOffset | None
) -> None:
    """Fill `result` with the record found, if clients may read it."""
    if found is not None and found.offset < end:
        result.timestamp, result.offset, result.leader_epoch = found
