"""Finding runs by offset and time, and watching commits (diskless/control_plane/interface.py)."""

import asyncio
import random

from quipu.diskless.control_plane.interface import (
    MOVED_START,
    FindRequest,
    FoundRuns,
    RetentionRule,
)
from quipu.diskless.values import LogBounds, LogKey
from quipu.model.ids import Offset
from tests.contract.control_plane.planes import (
    NOW,
    UNKNOWN_TOPIC,
    PlaneUnderTest,
    all_runs,
    batch,
    committed,
    new_logs,
    opened,
    stored,
    with_logs,
)
from tests.looped import looped

WAIT_SECONDS = 20.0


@looped
async def test_a_find_returns_the_runs_from_an_offset_on(under_test: PlaneUnderTest) -> None:
    """D5: for every offset; beginning with the run that holds it."""
    async with with_logs(under_test) as (plane, [log]):
        for count in (3, 1, 5, 2):
            await committed(plane, batch(log, count), batch(log, count))
        runs = await all_runs(plane, log)
        assert [(run.base_offset, run.end_offset) for run in runs] == [
            (0, 6), (6, 8), (8, 18), (18, 22)]
        for offset in range(22):
            [found] = await plane.find([FindRequest(log, Offset(offset), 1 << 62)])
            assert list(found.runs) == [run for run in runs if run.end_offset > offset]


@looped
async def test_a_find_ends_after_so_many_bytes_or_runs(under_test: PlaneUnderTest) -> None:
    """D5: at least one run, even if nothing is asked for; each request has its own limit."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        for _ in range(5):
            await committed(plane, batch(a, size=100), batch(b, size=100))
        asked = [FindRequest(log, Offset(0), size) for log, size in (
            (a, -1), (a, 0), (a, 100), (b, 101), (b, 300), (b, 10**6))]
        found = await plane.find(asked)
        assert [len(each.runs) for each in found] == [1, 1, 1, 2, 3, 5]
        found = await plane.find(asked, runs_max=2)
        assert [len(each.runs) for each in found] == [1, 1, 1, 2, 2, 2]
        assert await plane.find([]) == []


@looped
async def test_offsets_out_of_range_find_the_bounds_alone(under_test: PlaneUnderTest) -> None:
    """D5: the end, above it, below the start, negative; an empty log; a log that does not exist."""
    async with with_logs(under_test, 2) as (plane, [log, empty]):
        assert await plane.find([FindRequest(empty, Offset(0), 100)]) == [
            FoundRuns(LogBounds(Offset(0), Offset(0), Offset(0), 0))]
        await committed(plane, batch(log, 5))
        await committed(plane, batch(log, 5))
        await plane.delete_records(log, Offset(5), NOW)
        bounds = LogBounds(Offset(5), Offset(5), Offset(10), 100)
        found = await plane.find([FindRequest(log, Offset(offset), 100)
                                  for offset in (10, 11, 2**63 - 1, 4, 0, -1)])
        assert found == [FoundRuns(bounds)] * 6
        unknown = [LogKey(UNKNOWN_TOPIC, 0), LogKey(log.topic_id, 2), LogKey(log.topic_id, -1)]
        assert await plane.find([FindRequest(each, Offset(0), 100) for each in unknown]) == [
            FoundRuns(None)] * 3
        assert await plane.bounds([unknown[0], log, unknown[1]]) == [None, bounds, None]


@looped
async def test_a_time_is_found_whatever_the_order_of_timestamps(
    under_test: PlaneUnderTest,
) -> None:
    """D5: diskless.C7: random timestamps; also once earlier runs, with larger ones, are gone."""
    rng = random.Random(7)
    async with with_logs(under_test) as (plane, [log]):
        for _ in range(70):
            await committed(plane, batch(log, 2, timestamp=rng.randrange(100)))
        for start in (0, 2, 3, 64, 71, 128, 139):
            await plane.delete_records(log, Offset(start), NOW)
            runs = await all_runs(plane, log)
            largest = max(run.max_timestamp for run in runs)
            for timestamp in (-1, 0, 20, 50, 80, 95, largest, largest + 1, 2**63 - 1):
                for from_offset in (0, start + 1, start + 6, 140, 1000):
                    later = [run for run in runs if run.end_offset > from_offset]
                    expected = [run for run in later if run.max_timestamp >= timestamp]
                    assert await plane.find_timestamp(log, timestamp, from_offset=from_offset) == (
                        expected[0] if expected else None)
                    newest = max(later, key=lambda run: run.max_timestamp, default=None)
                    assert await plane.find_max_timestamp(
                        log, from_offset=from_offset) == newest
        await plane.delete_records(log, Offset(-1), NOW)
        assert await plane.find_timestamp(log, 0) is None
        assert await plane.find_max_timestamp(log) is None
        assert await plane.find_timestamp(LogKey(UNKNOWN_TOPIC, 0), 0) is None


@looped
async def test_who_watches_is_called_after_commits(under_test: PlaneUnderTest) -> None:
    """D5: diskless.C9: once for each log that grew, when `find` has it; until the watch ends."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        heard: list[tuple[LogKey | None, int]] = []
        failing = plane.watch(_fail)
        end = plane.watch(lambda log, offset: heard.append((log, offset)))
        await committed(plane, batch(a, 3), batch(b, 1), batch(a, 1),
                        batch(LogKey(UNKNOWN_TOPIC, 0)))
        await _until(lambda: {(a, 4), (b, 1)} <= set(heard))
        await plane.commit(stored(), NOW)
        end()
        failing()
        before = len(heard)
        await committed(plane, batch(a, 3))
        await asyncio.sleep(0.05)
        assert [each for each in heard if each[0] is not None] == [(a, 4), (b, 1)]
        assert len(heard) == before


@looped
async def test_topics_and_partitions_are_created_once(under_test: PlaneUnderTest) -> None:
    """D2: more partitions are added; fewer change nothing."""
    async with opened(under_test) as plane, opened(under_test) as other:
        [log] = await new_logs(plane, 1)
        name = f"topic-{log.topic_id}"
        await committed(plane, batch(log, 3))
        await asyncio.gather(*(each.create_logs(log.topic_id, name, 3)
                               for each in (plane, other, plane, other)))
        await plane.create_logs(log.topic_id, name, 2)
        assert (await plane.topics())[log.topic_id] == (name, 3)
        found = await plane.bounds([LogKey(log.topic_id, n) for n in range(4)])
        assert [each and each.high_watermark for each in found] == [3, 0, 0, None]


@looped
async def test_who_watches_is_told_of_moved_log_starts(under_test: PlaneUnderTest) -> None:
    """D7, diskless.C9: by DeleteRecords, retention, and the retention of the tier."""
    async with with_logs(under_test, 3) as (plane, logs):
        heard: list[tuple[LogKey | None, Offset]] = []
        plane.watch(lambda log, offset: heard.append((log, offset)))
        await committed(plane, *(batch(log) for log in logs for _ in range(2)))
        await _until(lambda: {log for log, _ in heard} >= set(logs))
        heard.clear()
        await plane.delete_records(logs[0], Offset(1), NOW)
        await plane.retain([RetentionRule(logs[1], 0, -1), RetentionRule(logs[2], -1, -1)],
                           NOW + 1)
        claim = await plane.claim_tiering(logs[2], "me", NOW, 1000)
        assert claim is not None
        await plane.note_tiered(claim, Offset(2), NOW)
        await plane.advance_log_start(logs[2], Offset(1), NOW)
        await _until(lambda: len(heard) >= 3)
        assert heard == [(log, MOVED_START) for log in logs]


def _fail(_log: LogKey | None, _offset: Offset) -> None:
    raise LookupError("a listener's own bug")


async def _until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)
