"""Deleting records and topics, retention, tiering (diskless/control_plane/interface.py)."""

from typing import NamedTuple

import pytest

from quipu.diskless.control_plane.interface import ControlPlane, RetentionRule
from quipu.diskless.values import LogBounds, LogKey
from quipu.model.errors import Code
from quipu.model.ids import Offset, TimestampMs
from tests.contract.control_plane.planes import (
    NOW,
    UNKNOWN_TOPIC,
    PlaneUnderTest,
    accepted,
    all_runs,
    batch,
    committed,
    refused,
    stored,
    with_logs,
)
from tests.looped import looped

NOWHERE = LogKey(UNKNOWN_TOPIC, 0)


def bounds(log_start: int, diskless_start: int, high_watermark: int, size: int) -> LogBounds:
    return LogBounds(Offset(log_start), Offset(diskless_start), Offset(high_watermark), size)


async def filled(plane: ControlPlane, log: LogKey, *ages: int) -> None:
    """An object for each age, with one batch of 10 records and 100 bytes."""
    for age in ages:
        await committed(plane, batch(log, 10, timestamp=NOW - age))


@looped
async def test_records_are_deleted_up_to_an_offset(under_test: PlaneUnderTest) -> None:
    """D7: diskless.C5: a run that is partly below the log start stays until all of it is."""
    async with with_logs(under_test) as (plane, [log]):
        await filled(plane, log, 0, 0, 0)
        assert await plane.delete_records(log, Offset(15), NOW) == bounds(15, 15, 30, 200)
        assert len(await all_runs(plane, log)) == 2
        assert len(await plane.deletable_objects(NOW + 1, 10)) == 1
        assert await plane.delete_records(log, Offset(20), NOW) == bounds(20, 20, 30, 100)
        for unchanged in (20, 5, 0, 31, 2**63 - 1, -2, -2**63):
            assert await plane.delete_records(log, Offset(unchanged), NOW) == bounds(
                20, 20, 30, 100)
        assert await plane.delete_records(log, Offset(-1), NOW + 7) == bounds(30, 30, 30, 0)
        assert len(await plane.deletable_objects(NOW + 8, 10)) == 3
        assert await plane.delete_records(log, Offset(-1), NOW) == bounds(30, 30, 30, 0)
        assert await committed(plane, batch(log, 1)) == [accepted(30, 30)]
        assert await plane.delete_records(NOWHERE, Offset(0), NOW) is None


@looped
async def test_an_object_is_marked_when_its_last_run_goes(under_test: PlaneUnderTest) -> None:
    """D7: diskless.C6: not while another log needs it."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        new = stored(batch(a, 2), batch(b, 3, size=50))
        await plane.commit(new, NOW)
        await plane.delete_records(a, Offset(-1), NOW + 1)
        [state] = await plane.objects()
        assert state == (new.key, 1, new.size, 50, 1, NOW, None)
        await plane.delete_records(b, Offset(-1), NOW + 2)
        [state] = await plane.objects()
        assert state == (new.key, 1, new.size, 0, 0, NOW, NOW + 2)


class Retained(NamedTuple):
    """A case of retention: the ages of the runs, the rule, and the first offset that stays."""

    name: str
    ages: tuple[int, ...]
    retention_ms: int
    retention_bytes: int
    start: int


RETAINED = [
    Retained("an empty log", (), 0, 0, 0),
    Retained("no limits", (10**12, 5), -1, -1, 0),
    Retained("old ones go", (50, 40, 30, 20), 30, -1, 20),
    Retained("exactly as old as allowed stays", (31, 30), 30, -1, 10),
    Retained("a young one stops it", (50, 5, 50), 30, -1, 10),
    Retained("all are old", (50, 40), 30, -1, 20),
    Retained("retention of 0 ms", (1, 0), 0, -1, 10),
    Retained("timestamps of the future stay", (-50, 40), 30, -1, 0),
    Retained("by size", (0, 0, 0, 0), -1, 250, 10),
    Retained("by size, exactly", (0, 0, 0, 0), -1, 200, 20),
    Retained("by size, nothing to do", (0, 0), -1, 201, 0),
    Retained("by size, everything", (0, 0), -1, 0, 20),
    Retained("either of both is enough", (50, 0, 0, 0), 30, 300, 10),
    Retained("both", (50, 50, 0, 0, 0), 30, 200, 30),
    Retained("more than everything", (50, 50), 0, 0, 20),
    Retained("the largest limits", (50,), 2**63 - 1, 2**63 - 1, 0),
]


@pytest.mark.parametrize("case", RETAINED, ids=[case.name for case in RETAINED])
@looped
async def test_retention(under_test: PlaneUnderTest, case: Retained) -> None:
    """D7: by age and by size, run by run, oldest first."""
    async with with_logs(under_test) as (plane, [log]):
        await filled(plane, log, *case.ages)
        rule = RetentionRule(log, case.retention_ms, case.retention_bytes)
        [found] = await plane.retain([rule], NOW)
        end, size = 10 * len(case.ages), 100 * len(case.ages)
        assert found == bounds(case.start, case.start, end, size - 10 * case.start)
        assert await plane.retain([rule], NOW) == [found]
        await all_runs(plane, log)
        assert len(await plane.deletable_objects(NOW + 1, 100)) == case.start // 10


@looped
async def test_retention_takes_a_few_runs_at_a_time(under_test: PlaneUnderTest) -> None:
    """D7: of several logs, each with a rule of its own; unknown ones are None."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        await filled(plane, a, 9, 9, 9, 9, 9)
        await filled(plane, b, 9, 9)
        rules = [RetentionRule(NOWHERE, 0, 0), RetentionRule(a, 5, -1), RetentionRule(b, -1, 100)]
        assert await plane.retain(rules, NOW, runs_max=2) == [
            None, bounds(20, 20, 50, 300), bounds(10, 10, 20, 100)]
        assert await plane.retain(rules, NOW, runs_max=2) == [
            None, bounds(40, 40, 50, 100), bounds(10, 10, 20, 100)]
        assert await plane.retain([], NOW) == []


@looped
async def test_a_run_without_timestamps_is_as_old_as_its_commit(
    under_test: PlaneUnderTest,
) -> None:
    """D7: it is not taken for the oldest of all."""
    async with with_logs(under_test) as (plane, [log]):
        await committed(plane, batch(log, 10, timestamp=-1), now_ms=NOW)
        rule = RetentionRule(log, 100, -1)
        assert await plane.retain([rule], NOW + 100) == [bounds(0, 0, 10, 100)]
        assert await plane.aged_runs(log, NOW) == []
        assert len(await plane.aged_runs(log, NOW + 1)) == 1
        assert await plane.retain([rule], NOW + 101) == [bounds(10, 10, 10, 0)]


@looped
async def test_a_deleted_topic_stays_deleted(under_test: PlaneUnderTest) -> None:
    """D7: diskless.C8: with its producers; other topics and the objects' other runs stay."""
    async with with_logs(under_test, 2) as (plane, [a, b]), \
            with_logs(under_test) as (_, [kept]):
        shared, own = stored(batch(a), batch(kept)), stored(batch(b, producer=(1, 0, 0)))
        await plane.commit(shared, NOW)
        await plane.commit(own, NOW)
        await plane.delete_topic(a.topic_id, NOW + 1)
        await plane.delete_topic(a.topic_id, NOW + 2)
        assert a.topic_id not in await plane.topics()
        await plane.create_logs(a.topic_id, "again", 5)
        assert await plane.bounds([a, b, kept]) == [None, None, bounds(0, 0, 1, 100)]
        assert await plane.producers(b) == []
        assert await committed(plane, batch(a), batch(kept)) == [
            refused(Code.UNKNOWN_TOPIC_OR_PARTITION), accepted(1)]
        assert await plane.deletable_objects(NOW + 3, 10) == [own.key]
        assert [run.log for run in await plane.object_runs(shared.key)] == [kept]
        assert set(await plane.topics()) == {kept.topic_id}
        await plane.delete_topic(UNKNOWN_TOPIC, NOW)
        await plane.create_logs(UNKNOWN_TOPIC, "late", 1)
        assert await plane.bounds([NOWHERE]) == [None]


@looped
async def test_a_claim_belongs_to_one_owner_at_a_time(under_test: PlaneUnderTest) -> None:
    """D8: its epoch grows with every new owner, and a former owner changes nothing."""
    async with with_logs(under_test) as (plane, [log]):
        await filled(plane, log, 0, 0, 0)
        first = await plane.claim_tiering(log, "one", NOW, 100)
        assert first is not None
        assert await plane.claim_tiering(log, "two", NOW + 99, 100) is None
        renewed = await plane.claim_tiering(log, "one", NOW + 99, 100)
        assert renewed == first._replace(until_ms=TimestampMs(NOW + 199))
        assert await plane.note_tiered(first, Offset(10), NOW + 100) == bounds(0, 10, 30, 200)
        second = await plane.claim_tiering(log, "two", NOW + 199, 100)
        assert second == (log, first.epoch + 1, "two", NOW + 299)
        assert await plane.note_tiered(first, Offset(20), NOW + 200) is None
        third = await plane.claim_tiering(log, "one", NOW + 299, 100)
        assert third is not None
        assert third.epoch == first.epoch + 2
        assert await plane.note_tiered(first, Offset(20), NOW + 300) is None
        assert await plane.bounds([log]) == [bounds(0, 10, 30, 200)]
        assert await plane.claim_tiering(NOWHERE, "one", NOW, 100) is None
        assert await plane.note_tiered(third._replace(log=NOWHERE), Offset(0), NOW) is None


@looped
async def test_records_move_to_the_tier(under_test: PlaneUnderTest) -> None:
    """D8: their runs go, and the log start follows what the tier expires."""
    async with with_logs(under_test) as (plane, [log]):
        await filled(plane, log, 50, 40, 30, 20)
        aged = await plane.aged_runs(log, NOW - 25)
        assert [run.end_offset for run in aged] == [10, 20, 30]
        assert len(await plane.aged_runs(log, NOW, limit=2)) == 2
        assert await plane.aged_runs(NOWHERE, NOW) == []
        claim = await plane.claim_tiering(log, "one", NOW, 100)
        assert claim is not None
        assert await plane.note_tiered(claim, Offset(25), NOW) == bounds(0, 25, 40, 200)
        assert await plane.note_tiered(claim, Offset(5), NOW) == bounds(0, 25, 40, 200)
        assert await plane.note_tiered(claim, Offset(99), NOW) == bounds(0, 40, 40, 0)
        assert len(await plane.deletable_objects(NOW + 1, 10)) == 4
        assert await plane.advance_log_start(log, Offset(15), NOW) == bounds(15, 40, 40, 0)
        assert await plane.advance_log_start(log, Offset(5), NOW) == bounds(15, 40, 40, 0)
        assert await plane.delete_records(log, Offset(20), NOW) == bounds(20, 40, 40, 0)
        assert await plane.advance_log_start(log, Offset(99), NOW) == bounds(40, 40, 40, 0)
        assert await plane.advance_log_start(NOWHERE, Offset(1), NOW) is None
