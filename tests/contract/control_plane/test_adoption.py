"""Logs that were on disks go on in the control plane where they ended (diskless.C12)."""

from quipu.diskless.control_plane.interface import AdoptedLog, AdoptedProducer
from quipu.diskless.values import BORN_DISKLESS, LogBounds, LogKey
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
    opened,
    refused,
    with_logs,
)
from tests.looped import looped

# A producer whose last batches have sequences 3 to 4 at offset 20, and 5 to 9 at offset 25.
PRODUCER = AdoptedProducer(ProducerId(7), 2, ((3, 4, 20), (5, 9, 25)), TimestampMs(NOW - 5))


def adopted(
    log: LogKey, epoch: int = 11, *, start: int = 4, end: int = 30,
    producers: tuple[AdoptedProducer, ...] = (PRODUCER,),
) -> AdoptedLog:
    return AdoptedLog(log, epoch, ((3, Offset(0)), (8, Offset(10))), Offset(start), Offset(end),
                      producers)


@looped
async def test_offsets_and_epochs_go_on(under_test: PlaneUnderTest) -> None:
    """D30: one offset space; the first record of the control plane follows the last one."""
    async with with_logs(under_test, 2) as (plane, [log, other]):
        assert await plane.adopt_log(adopted(log), NOW)
        assert await plane.bounds([log, other]) == [
            LogBounds(Offset(4), Offset(30), Offset(30), 0), LogBounds(*map(Offset, (0, 0, 0)), 0)]
        assert await committed(plane, batch(log, 3)) == [accepted(30, 4)]
        assert [run.base_offset for run in await all_runs(plane, log)] == [30]
    async with opened(under_test) as plane:  # it is durable
        found = await plane.lineages([log, other, LogKey(UNKNOWN_TOPIC, 0)])
        assert found == [((3, 0), (8, 10), (11, 30)), BORN_DISKLESS, None]


@looped
async def test_producers_go_on(under_test: PlaneUnderTest) -> None:
    """D30: duplicates are known, and sequences continue exactly."""
    async with with_logs(under_test) as (plane, [log]):
        await plane.adopt_log(adopted(log), NOW)

        assert await committed(
            plane, batch(log, 2, producer=(7, 2, 3)), batch(log, 5, producer=(7, 2, 5)),
            batch(log, 1, producer=(7, 2, 11)), batch(log, 1, producer=(7, 1, 10)),
            batch(log, 1, producer=(7, 2, 10)), batch(log, 1, producer=(8, 0, 6)),
        ) == [duplicate(20, 4), duplicate(25, 4), refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
              refused(Code.INVALID_PRODUCER_EPOCH), accepted(30, 4), accepted(31, 4)]
        [known, _] = await plane.producers(log)
        assert known == (7, 2, 10, NOW)


@looped
async def test_only_a_later_head_replaces_what_is_entered(under_test: PlaneUnderTest) -> None:
    """D32: a head that is late, and one that repeats itself, change nothing."""
    async with with_logs(under_test) as (plane, [log]):
        assert await plane.adopt_log(adopted(log, 11), NOW)
        assert await plane.adopt_log(adopted(log, 11, end=99), NOW)  # it was entered before
        assert not await plane.adopt_log(adopted(log, 10, end=99), NOW)
        [bounds] = await plane.bounds([log])
        assert bounds == (4, 30, 30, 0)

        assert await plane.adopt_log(adopted(log, 14, start=5, end=40, producers=()), NOW)
        assert (await plane.bounds([log]))[0] == (5, 40, 40, 0)
        assert await plane.producers(log) == []
        assert (await plane.lineages([log]))[0] == ((3, 0), (8, 10), (14, 40))


@looped
async def test_a_log_that_was_written_to_is_not_adopted(under_test: PlaneUnderTest) -> None:
    """D32: what was committed stays, whoever comes late; nor is one of a deleted topic adopted."""
    async with with_logs(under_test, 2) as (plane, [log, other]):
        await plane.adopt_log(adopted(log, 11), NOW)
        await committed(plane, batch(log), batch(other))
        assert not await plane.adopt_log(adopted(log, 12, end=99), NOW)
        assert not await plane.adopt_log(adopted(other, 12), NOW)
        await plane.delete_records(other, Offset(-1), NOW)
        assert not await plane.adopt_log(adopted(other, 12), NOW)
        assert [bounds and bounds[:3] for bounds in await plane.bounds([log, other])] == [
            (4, 30, 31), (1, 1, 1)]
        await plane.delete_topic(log.topic_id, NOW)
        assert not await plane.adopt_log(adopted(log, 20), NOW)


@looped
async def test_claims_are_later_than_the_head(under_test: PlaneUnderTest) -> None:
    """D30: who moves records to the tier then leads its metadata after the last head."""
    async with with_logs(under_test, 3) as (plane, [log, restored, fresh]):
        await plane.adopt_log(adopted(log, 11), NOW)
        await plane.restore_lineage(restored, ((3, Offset(0)), (9, Offset(10))))
        await plane.restore_lineage(log, ((3, Offset(0)), (90, Offset(10))))  # it has its own

        claims = [await plane.claim_tiering(each, "node", NOW, 1000)
                  for each in (log, restored, fresh)]

        assert [claim and claim.epoch for claim in claims] == [12, 10, 1]
        assert await plane.lineages([log, restored]) == [
            ((3, 0), (8, 10), (11, 30)), ((3, 0), (9, 10))]
