"""Commits: dense offsets, outcomes, idempotence (diskless/control_plane/interface.py)."""

import asyncio
from uuid import uuid4

import pytest

from quipu.diskless.control_plane.interface import COMMIT_BATCHES_MAX, FindRequest, ProducerState
from quipu.diskless.values import LogKey
from quipu.model.errors import Code
from quipu.model.ids import Offset, ProducerId, TimestampMs
from tests.contract.control_plane.planes import (
    NOW,
    UNKNOWN_TOPIC,
    PlaneUnderTest,
    accepted,
    all_runs,
    batch,
    committed,
    duplicate,
    new_logs,
    opened,
    refused,
    stored,
    with_logs,
)
from tests.looped import looped

LAST = 2**31 - 1
OUT_OF_ORDER = refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
WRONG_EPOCH = refused(Code.INVALID_PRODUCER_EPOCH)


@looped
async def test_offsets_are_dense(under_test: PlaneUnderTest) -> None:
    """D1, D2: diskless.C1: over several commits, logs and batches."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        assert await committed(plane, batch(a, 3), batch(b, 2), batch(b, 5)) == [
            accepted(0), accepted(0), accepted(2)]
        assert await committed(plane, batch(a, 1), batch(b, 1), batch(a, 4)) == [
            accepted(3), accepted(7), accepted(4)]
        assert [each.high_watermark for each in await plane.bounds([a, b]) if each] == [8, 8]
        await all_runs(plane, a)
        await all_runs(plane, b)


@looped
async def test_batches_that_follow_each_other_become_one_run(under_test: PlaneUnderTest) -> None:
    """D2: one row for each log of an object, not one for each batch."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        new = stored(batch(a, 3, timestamp=NOW - 5), batch(a, 2, timestamp=NOW + 5), batch(b, 1),
                     batch(a, 1, timestamp=NOW))
        await plane.commit(new, NOW)
        one, other = await all_runs(plane, a)
        assert one[1:] == (0, 5, new.key, 10, 200, 2, NOW + 5)
        assert other[1:] == (5, 6, new.key, 310, 100, 1, NOW)
        assert [run.log for run in await plane.object_runs(new.key)] == [a, b, a]


@looped
async def test_a_refused_batch_ends_a_run(under_test: PlaneUnderTest) -> None:
    """D2: its bytes are in the object, but in no run."""
    async with with_logs(under_test) as (plane, [log]):
        await committed(plane, batch(log, producer=(1, 0, 0)))
        new = stored(batch(log), batch(log, producer=(1, 0, 5)), batch(log))
        assert await plane.commit(new, NOW) == [accepted(1), OUT_OF_ORDER, accepted(2)]
        assert [run[1:6] for run in await plane.object_runs(new.key)] == [
            (1, 2, new.key, 10, 100), (2, 3, new.key, 210, 100)]


@looped
async def test_an_empty_commit_is_marked_at_once(under_test: PlaneUnderTest) -> None:
    """D7: diskless.C6: as is one whose batches are all refused, or duplicates."""
    async with with_logs(under_test) as (plane, [log]):
        await committed(plane, batch(log, producer=(1, 0, 0)))
        empty, lost = stored(), stored(batch(LogKey(UNKNOWN_TOPIC, 0)), batch(LogKey(
            log.topic_id, 1)))
        again = stored(batch(log, producer=(1, 0, 0)))
        assert await plane.commit(empty, NOW) == []
        assert await plane.commit(lost, NOW + 1) == [
            refused(Code.UNKNOWN_TOPIC_OR_PARTITION)] * 2
        assert await plane.commit(again, NOW + 2) == [duplicate(0)]
        assert await plane.deletable_objects(NOW + 10, 10) == [empty.key, lost.key, again.key]


@looped
async def test_a_commit_that_is_repeated_changes_nothing(under_test: PlaneUnderTest) -> None:
    """D3: diskless.C2: a retry after a lost answer, also when the object is of no use any more."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        await committed(plane, batch(a, 4), batch(b, producer=(7, 1, 0)))
        await plane.delete_records(a, Offset(2), NOW)
        new = stored(batch(a, 3), batch(b, producer=(7, 1, 0)), batch(b, producer=(7, 0, 1)),
                     batch(b, producer=(7, 1, 9)), batch(b, 2), batch(LogKey(UNKNOWN_TOPIC, 0)))
        first = await plane.commit(new, NOW)
        assert first == [accepted(4, 2), duplicate(0), WRONG_EPOCH, OUT_OF_ORDER, accepted(1),
                         refused(Code.UNKNOWN_TOPIC_OR_PARTITION)]
        before = await plane.bounds([a, b])
        assert await plane.commit(new, NOW + 1) == first
        assert await plane.bounds([a, b]) == before
        await plane.delete_records(a, Offset(-1), NOW)
        await plane.delete_topic(b.topic_id, NOW)
        assert (await plane.objects())[0].marked_ms is not None
        assert await plane.commit(new, NOW + 2) == first


@looped
async def test_several_batches_of_a_producer_in_one_commit(under_test: PlaneUnderTest) -> None:
    """D3: diskless.C3: each counts for the next, also a duplicate within the object."""
    async with with_logs(under_test) as (plane, [log]):
        found = await committed(
            plane, batch(log, 2, producer=(1, 0, 0)), batch(log, 3, producer=(1, 0, 2)),
            batch(log, 2, producer=(1, 0, 0)), batch(log, 1, producer=(1, 0, 6)),
            batch(log, 1, producer=(1, 1, 0)), batch(log, 1, producer=(1, 0, 5)))
        assert found == [accepted(0), accepted(2), duplicate(0), OUT_OF_ORDER, accepted(5),
                         WRONG_EPOCH]


@looped
async def test_the_sequence_wraps_around(under_test: PlaneUnderTest) -> None:
    """D3: diskless.C3: after 2^31 - 1 comes 0, between batches and within one."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        assert await committed(plane, batch(a, 1, producer=(1, 0, LAST))) == [accepted(0)]
        assert await committed(plane, batch(a, 1, producer=(1, 0, 1))) == [OUT_OF_ORDER]
        assert await committed(plane, batch(a, 2, producer=(1, 0, 0))) == [accepted(1)]
        assert await committed(plane, batch(a, 1, producer=(1, 0, LAST))) == [duplicate(0)]
        assert await committed(plane, batch(a, 1, producer=(1, 0, 2))) == [accepted(3)]

        assert await committed(plane, batch(b, 5, producer=(1, 0, LAST - 1))) == [accepted(0)]
        assert await committed(plane, batch(b, 1, producer=(1, 0, 2))) == [OUT_OF_ORDER]
        assert await committed(plane, batch(b, 5, producer=(1, 0, LAST - 1))) == [duplicate(0)]
        assert await committed(plane, batch(b, 1, producer=(1, 0, 3))) == [accepted(5)]


@looped
async def test_a_new_epoch_begins_at_sequence_0(under_test: PlaneUnderTest) -> None:
    """D3: diskless.C3: its first batch is no duplicate of one of the old epoch."""
    async with with_logs(under_test) as (plane, [log]):
        await committed(plane, batch(log, 1, producer=(1, 0, 0)))
        assert await committed(plane, batch(log, 1, producer=(1, 1, 1))) == [OUT_OF_ORDER]
        assert await committed(plane, batch(log, 1, producer=(1, 1, 0))) == [accepted(1)]
        assert await committed(plane, batch(log, 1, producer=(1, 0, 1))) == [WRONG_EPOCH]
        assert await committed(plane, batch(log, 1, producer=(1, 1, 0))) == [duplicate(1)]
        assert await committed(plane, batch(log, 1, producer=(1, 9, 0))) == [accepted(2)]


@looped
async def test_the_last_five_batches_are_remembered(under_test: PlaneUnderTest) -> None:
    """D3: diskless.C3: an older one is out of order; the same base with another end too."""
    async with with_logs(under_test) as (plane, [log]):
        for n in range(6):
            await committed(plane, batch(log, 2, producer=(1, 0, 2 * n)))
        assert await committed(plane, *(batch(log, 2, producer=(1, 0, 2 * n)) for n in range(6))) \
            == [OUT_OF_ORDER, *(duplicate(2 * n) for n in range(1, 6))]
        assert await committed(plane, batch(log, 1, producer=(1, 0, 10))) == [OUT_OF_ORDER]


@looped
async def test_a_producer_that_a_log_does_not_know_may_begin_anywhere(
    under_test: PlaneUnderTest,
) -> None:
    """D3: diskless.C3: as in Kafka, whose state may have expired; each log has its own."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        assert await committed(plane, batch(a, producer=(1, 3, 77))) == [accepted(0)]
        assert await committed(plane, batch(b, producer=(1, 2, 5))) == [accepted(0)]
        assert await committed(plane, batch(b, producer=(1, 2, 6))) == [accepted(1)]


@looped
async def test_producers_expire(under_test: PlaneUnderTest) -> None:
    """D3: idle ones are forgotten, by their last commit; a few at a time."""
    async with with_logs(under_test) as (plane, [log]):
        for n in range(4):
            await committed(plane, batch(log, producer=(n, 0, 0), timestamp=n), now_ms=NOW + n)
        assert list(await plane.producers(log)) == [
            ProducerState(ProducerId(n), 0, 0, TimestampMs(n)) for n in range(4)]
        assert await plane.expire_producers(NOW + 3, 2) == 2
        assert await plane.expire_producers(NOW + 3, 2) == 1
        assert await plane.expire_producers(NOW + 3, 2) == 0
        assert [each.producer_id for each in await plane.producers(log)] == [3]
        assert await plane.producers(LogKey(uuid4(), 0)) == []


@looped
async def test_hostile_values_are_taken_or_refused(under_test: PlaneUnderTest) -> None:
    """D2: extremes of timestamps and sequences, and batches without them."""
    async with with_logs(under_test) as (plane, [log]):
        extremes = [-2**63, -1, 0, 2**63 - 1]
        assert await committed(plane, *(batch(log, timestamp=each) for each in extremes)) == [
            accepted(n) for n in range(4)]
        assert await committed(
            plane, batch(log, producer=(2**63 - 1, 2**15 - 1, LAST)),
            batch(log, LAST, producer=(2**63 - 1, 2**15 - 1, 0)),
            batch(log, producer=(5, -1, 0)), batch(log, producer=(5, 0, -1)),
        ) == [accepted(4), accepted(5), WRONG_EPOCH, OUT_OF_ORDER]
        run = await plane.find_max_timestamp(log)
        assert run is not None
        assert run.max_timestamp == 2**63 - 1
        assert await plane.find_timestamp(log, -2**63) is not None
        with pytest.raises(AssertionError):
            await committed(plane, batch(log, 0))


@looped
async def test_ten_thousand_batches_are_one_commit(under_test: PlaneUnderTest) -> None:
    """D2: of many logs and producers; one more is a bug of the writer."""
    async with opened(under_test) as plane:
        logs = await new_logs(plane, 500)
        batches = [batch(logs[n % 500], producer=(n, 0, 0) if n % 2 else (-1, -1, -1))
                   for n in range(COMMIT_BATCHES_MAX)]
        outcomes = await committed(plane, *batches)
        assert outcomes == [accepted(n // 500) for n in range(COMMIT_BATCHES_MAX)]
        found = await plane.find([FindRequest(log, Offset(0), 1 << 40) for log in logs])
        assert {len(each.runs) for each in found} == {20}
        with pytest.raises(AssertionError):
            await committed(plane, *batches, batch(logs[0]))


@looped
async def test_writers_of_one_log_share_one_order(under_test: PlaneUnderTest) -> None:
    """D2: diskless.C1: two nodes race for the same logs, named in different orders."""
    async with with_logs(under_test, 8) as (one, logs), opened(under_test) as other:
        taken: dict[LogKey, list[tuple[int, int]]] = {log: [] for log in logs}

        async def write(writer: int) -> None:
            plane = (one, other)[writer % 2]
            for n in range(6):
                turned = [logs[(writer * 3 + n + k) % 8] for k in range(8)]
                batches = [batch(log, 1 + (writer + n) % 3)
                           for log in (turned if writer % 3 else turned[::-1])]
                for each, outcome in zip(batches, await committed(plane, *batches), strict=True):
                    assert outcome.code == Code.NONE
                    taken[each.log].append((outcome.base_offset, each.record_count))

        await asyncio.gather(*(write(writer) for writer in range(6)))
        for log in logs:
            end = 0
            for base, count in sorted(taken[log]):
                assert base == end
                end += count
            assert (await all_runs(one, log))[-1].end_offset == end


@looped
async def test_two_commits_of_one_object_at_once_are_one(under_test: PlaneUnderTest) -> None:
    """D3: diskless.C2: a repetition overtakes the first attempt."""
    async with with_logs(under_test, 2) as (one, [a, b]), opened(under_test) as other:
        for number in range(5):
            new = stored(batch(a, 2), batch(b, 1), batch(a, 2, producer=(1, 0, 2 * number)))
            found = await asyncio.gather(*(
                plane.commit(new, NOW) for plane in (one, other, one, other)))
            assert all(each == found[0] for each in found)
            assert (await all_runs(one, a))[-1].end_offset == 4 * (number + 1)
        nowhere = stored(batch(LogKey(UNKNOWN_TOPIC, 0)))
        found = await asyncio.gather(*(plane.commit(nowhere, NOW) for plane in (one, other)))
        assert found[0] == found[1] == [refused(Code.UNKNOWN_TOPIC_OR_PARTITION)]
