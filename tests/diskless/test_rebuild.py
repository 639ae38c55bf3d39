"""A control plane that was lost is rebuilt from the objects, with the same offsets."""

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.diskless.cleaning.ownership import MARKS_PREFIX, mark_key
from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.errors import (
    ControlPlaneChanged,
    ControlPlaneNotEmpty,
    ForeignControlPlane,
    ForeignObjects,
)
from quipu.diskless.objects.encoding import PendingBatch, encode_object
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.reading import check_run, pending_of_run
from quipu.diskless.rebuild import RebuildProgress, RebuildReport, rebuild
from quipu.diskless.rebuild_plan import TieredOffsets
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset
from quipu.runtime.objects.store import ByteRange
from tests.diskless.histories import LOGS, TOPIC, History, read_log
from tests.looped import looped, timeless

REBUILDER = ObjectName(NodeId(0), UUID(int=1 << 100), 0)


async def rebuilt(
    history: History, **options: object
) -> tuple[MemoryControlPlane, RebuildReport]:
    plane = MemoryControlPlane()
    report = await rebuild(history.store, plane, history.clock, name=REBUILDER,
                           **options)  # type: ignore[arg-type]
    return plane, report


async def equal_logs(history: History, plane: MemoryControlPlane) -> None:
    """All records are where they were, and so are the bounds."""
    for log in LOGS:
        (old,), (new,) = await history.plane.bounds([log]), await plane.bounds([log])
        assert old is not None
        if new is None:
            assert old.high_watermark == 0
            continue
        assert new.high_watermark == old.high_watermark
        records = await read_log(history.store, history.plane, log)
        assert await read_log(history.store, plane, log) == records


@looped
async def test_offsets_and_bounds_are_as_before() -> None:
    """D37: two writers that ended well: the same records at the same offsets (diskless.B1)."""
    history = History()
    await history.begin()
    for number in range(10):
        await history.flush(number % 2, [history.new_batch(number % 3, 2), history.new_batch(0, 1)])
        history.clock.advance_ms(250)
    await history.delete_records(0, 3)
    await history.flush(0, [history.new_batch(0, 1)])
    for node in (0, 1):
        await history.stop(node)
    progress: list[RebuildProgress] = []
    plane, report = await rebuilt(history, topics={TOPIC: ("topic", 4)}, report=progress.append)
    await equal_logs(history, plane)
    assert await plane.topics() == {TOPIC: ("topic", 4)}
    assert report.counts.without_receipt == 0
    assert not report.gaps
    assert not report.damaged
    assert progress[-1].restored == report.object_count == 11
    (bounds,) = await plane.bounds([LOGS[0]])
    assert bounds is not None
    assert bounds.log_start_offset == 3


@looped
async def test_the_last_objects_of_a_writer_that_was_killed_fit_where_they_were() -> None:
    """D37: the gap that they left says where their batches belong (diskless.B2)."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 3)])
    await history.flush(1, [history.new_batch(0, 2)])
    await history.flush(0, [history.new_batch(0, 4), history.new_batch(1, 1)])
    history.crash(0)
    await history.flush(1, [history.new_batch(0, 5)])
    await history.stop(1)
    plane, report = await rebuilt(history)
    await equal_logs(history, plane)
    assert report.counts.without_receipt == 2
    assert not report.gaps
    assert (await plane.topics())[TOPIC] == (str(TOPIC), 2)


@looped
async def test_a_retry_at_another_writer_is_restored_once() -> None:
    """D3, D37: a receipt of a duplicate says where the first copy is (diskless.B1)."""
    history = History()
    await history.begin()
    await history.flush(1, [history.new_batch(0, 2)])
    batch = history.new_batch(0, 3, (9, 0, 0))
    await history.flush(0, [batch])
    history.crash(0)
    (outcome,) = await history.flush(1, [batch])
    assert outcome.is_duplicate
    await history.flush(1, [history.new_batch(0, 1, (9, 0, 3))])
    await history.stop(1)
    plane, report = await rebuilt(history)
    await equal_logs(history, plane)
    assert report.counts.copies == 1
    (producer,) = await plane.producers(LOGS[0])
    assert producer.last_sequence == 3


@looped
async def test_refused_batches_stay_refused() -> None:
    """D37: an object may have batches that no log ever had."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 2, (9, 1, 0))])
    outcomes = await history.flush(0, [history.new_batch(0, 2, (9, 0, 2)), history.new_batch(0, 1)])
    assert [outcome.code for outcome in outcomes] == [Code.INVALID_PRODUCER_EPOCH, Code.NONE]
    await history.stop(0)
    plane, report = await rebuilt(history)
    await equal_logs(history, plane)
    assert report.counts.refused == 1


@looped
async def test_a_lost_object_leaves_a_gap_that_reads_pass() -> None:
    """D37: later records keep their offsets; the gap is reported (diskless.B3)."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 3)])
    lost = await history.upload(0, [history.new_batch(0, 4)])
    await history.commit(0, lost)
    await history.flush(0, [history.new_batch(0, 2)])
    await history.stop(0)
    before = await read_log(history.store, history.plane, LOGS[0])
    data = bytearray(await history.store.get(lost.key))
    data[-40] ^= 1
    await history.store.put(lost.key, [bytes(data)])
    plane, report = await rebuilt(history)
    assert [(gap.start, gap.end) for gap in report.gaps] == [(3, 7)]
    assert [key for key, _ in report.damaged] == [lost.key]
    assert await read_log(history.store, plane, LOGS[0]) == {
        offset: value for offset, value in before.items() if not 3 <= offset < 7}
    (bounds,) = await plane.bounds([LOGS[0]])
    assert bounds is not None
    assert bounds.high_watermark == 9


@looped
async def test_the_end_of_a_log_without_records_is_not_lost() -> None:
    """D37: offsets are not used again, though all objects of the log are gone (diskless.B3)."""
    history = History()
    await history.begin()
    encoded = await history.upload(0, [history.new_batch(0, 7)])
    await history.commit(0, encoded)
    await history.flush(0, [history.new_batch(1, 1)])
    await history.store.delete([encoded.key])
    await history.stop(0)
    plane, _ = await rebuilt(history)
    (bounds,) = await plane.bounds([LOGS[0]])
    assert bounds is not None
    assert (bounds.log_start_offset, bounds.diskless_start_offset, bounds.high_watermark) == (
        7, 7, 7)


@looped
async def test_rewritten_objects_say_their_offsets() -> None:
    """D37: with the old objects or without them; copies are entered once (diskless.B1)."""
    for is_old_there in (True, False):
        history = History()
        await history.begin()
        first = await history.upload(0, [history.new_batch(0, 3), history.new_batch(1, 2)])
        await history.commit(0, first)
        await history.flush(0, [history.new_batch(0, 2)])
        await history.stop(0)
        pending = []
        for run in await history.plane.object_runs(first.key):
            (data,) = await history.store.get_ranges(
                run.key, [ByteRange(run.position, run.position + run.size)])
            view = memoryview(data)
            pending += pending_of_run(run.log, view, check_run(view, run))
        history.clock.advance_ms(100_000)
        new = encode_object(ObjectName(NodeId(5), UUID(int=500), 0), pending,
                            created_ms=history.clock.now_ms())
        await history.store.put(new.key, new.buffers)
        if not is_old_there:
            await history.store.delete([first.key])
        plane, report = await rebuilt(history)
        assert report.counts.copies == (2 if is_old_there else 0)
        assert len(await plane.object_runs(new.key)) == 2
        for log in LOGS[:2]:
            assert (await read_log(history.store, plane, log)).keys() == set(
                range(5 if log == LOGS[0] else 2))


@looped
async def test_records_in_the_remote_tier_stay_there() -> None:
    """D8, D37: the tier has offsets up to 4; batches below are not entered again."""
    history = History()
    await history.begin()
    for _ in range(4):
        await history.flush(0, [history.new_batch(0, 2)])
    await history.stop(0)
    plane, report = await rebuilt(
        history, tiers={LOGS[0]: TieredOffsets(Offset(1), Offset(4)),
                        LOGS[1]: TieredOffsets(Offset(0), Offset(9))})
    bounds = await plane.bounds(LOGS[:2])
    assert [each[:3] for each in bounds if each is not None] == [(1, 4, 8), (0, 9, 9)]
    assert report.counts.expired == 2


@looped
async def test_a_control_plane_that_is_not_empty_is_refused() -> None:
    """D37: nothing is mixed with what is there."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 2)])
    with pytest.raises(ControlPlaneNotEmpty, match="knows objects"):
        await rebuild(history.store, history.plane, history.clock, name=REBUILDER)
    other = MemoryControlPlane()
    await other.create_logs(TOPIC, "topic", 1)
    await other.restore_bounds(LOGS[0], Offset(1), Offset(1), Offset(1))
    with pytest.raises(ControlPlaneNotEmpty, match="knows records"):
        await rebuild(history.store, other, history.clock, name=REBUILDER)


@looped
async def test_a_write_during_a_rebuild_is_noticed() -> None:
    """D37: the bounds come first, so it gets offsets after the end; then the rebuild fails."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 2)])
    await history.stop(0)

    class Written(MemoryControlPlane):
        async def restore_objects(self, objects: Any, now_ms: int) -> None:
            late = await history.upload(1, [history.new_batch(0, 1)])
            (outcome,) = await self.commit(late.new_object, 1)
            assert outcome.base_offset == 2
            await super().restore_objects(objects, now_ms)

    with pytest.raises(ControlPlaneChanged, match="changed by others"):
        await rebuild(history.store, Written(), history.clock, name=REBUILDER)


@looped
async def test_a_rebuilt_control_plane_owns_the_store() -> None:
    """D7, D37: the mark of the lost one goes, so that orphans are collected again."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 2)])
    await history.store.put(mark_key(UUID(int=123)), [b""])
    plane, _ = await rebuilt(history)
    page = await history.store.list(MARKS_PREFIX)
    assert [info.key for info in page.objects] == [mark_key(await plane.identity())]


@looped
async def test_objects_of_another_cluster_are_refused() -> None:
    """D37: topics that do not exist are left out, but not all of them."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 2)])
    with pytest.raises(ForeignObjects):
        await rebuilt(history, topics={UUID(int=3): ("other", 1)})
    other = LOGS[0]._replace(topic_id=UUID(int=3))
    await history.plane.create_logs(other.topic_id, "other", 1)
    await history.flush(0, [history.new_batch(0, 2)._replace(log=other)])
    _, report = await rebuilt(history, topics={UUID(int=3): ("other", 1)})
    assert report.foreign == [TOPIC]


# -- random histories


class TestProducer:
    """An idempotent producer of one log: a sequence always stands for the same batch."""

    __test__ = False

    def __init__(self, history: History, log: int) -> None:
        self._history = history
        self._log = log
        self._batches: list[PendingBatch] = []
        self._next = 0

    def send(self, rng: random.Random) -> PendingBatch:
        """The next batch; or the last one again, or one too early."""
        index = max(0, self._next + rng.choice([0, 0, 0, -1, 1]))
        while len(self._batches) <= index:
            start = sum(batch.header.count for batch in self._batches)
            self._batches.append(self._history.new_batch(
                self._log, rng.randint(1, 4), (self._log, 0, start)))
        return self._batches[index]

    def sent(self, batch: PendingBatch, outcome: BatchOutcome) -> None:
        if batch in self._batches and outcome.code is Code.NONE:
            self._next = max(self._next, self._batches.index(batch) + 1)


async def act(history: History, rng: random.Random, producers: list[TestProducer]) -> None:
    """One random step of a history."""
    node, dice = rng.randrange(3), rng.random()
    history.clock.advance_ms(rng.randrange(1000))
    if dice < 0.06:
        await history.stop(node)
    elif dice < 0.1:
        history.crash(node)
    elif dice < 0.15:
        log = rng.randrange(3)
        (bounds,) = await history.plane.bounds([LOGS[log]])
        assert bounds is not None
        await history.delete_records(log, rng.randint(bounds.log_start_offset,
                                                      bounds.high_watermark))
    else:
        batches = [history.new_batch(rng.randrange(3), rng.randint(1, 4))
                   for _ in range(rng.randrange(3))]
        batches += [producers[log].send(rng) for log in range(3) if rng.random() < 0.4]
        rng.shuffle(batches)
        encoded = await history.upload(node, batches)
        if not batches or rng.random() < 0.1:
            history.crash(node)  # before the commit
            return
        for batch, outcome in zip(
                encoded.batches, await history.commit(node, encoded), strict=True):
            producers[batch.log.partition].sent(batch, outcome)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 40), ends_well=st.booleans())
def test_all_acknowledged_batches_are_there(seed: int, steps: int, ends_well: bool) -> None:
    """D37: those with receipts at their offsets, whatever was lost (diskless.B1, diskless.B2)."""

    @timeless
    async def check() -> None:
        rng, history = random.Random(seed), History()
        await history.begin()
        producers = [TestProducer(history, log) for log in range(3)]
        for _ in range(steps):
            await act(history, rng, producers)
        if ends_well:
            for node in range(3):
                await history.stop(node)
        history.crash_all()
        plane, report = await rebuilt(history)
        records = {log: await read_log(history.store, plane, log)
                   for log in LOGS if (await plane.bounds([log]))[0] is not None}
        for batch in history.receipted + history.unreceipted:
            base, kept = batch.base_offset, records.get(batch.log, {})
            alive = {base + number: value for number, value in enumerate(batch.values)
                     if base + number >= history.deleted_below.get(batch.log, 0)}
            if batch in history.receipted:
                assert {offset: kept.get(offset) for offset in alive} == alive
            else:
                assert set(alive.values()) <= set(kept.values())
        for log, found in records.items():
            (old,), (new,) = await history.plane.bounds([log]), await plane.bounds([log])
            assert old is not None
            assert new is not None
            assert len(set(found.values())) == len(found)
            if not history.unreceipted:
                assert new.high_watermark >= old.high_watermark
        assert report.counts.contradictions == 0
        assert not report.damaged

    check()


@looped
async def test_a_rebuilt_control_plane_belongs_to_the_cluster() -> None:
    """D37, diskless.C11: to the one that was asked for topics; one that has an owner keeps it."""
    history = History()
    await history.begin()
    await history.flush(0, [history.new_batch(0, 1)])
    plane, _ = await rebuilt(history, cluster_id="one")
    assert await plane.bind("two") == "one"
    plane, _ = await rebuilt(history)
    assert await plane.bind("two") == "two"
    plane = MemoryControlPlane()
    await plane.bind("two")
    with pytest.raises(ForeignControlPlane):
        await rebuild(history.store, plane, history.clock, name=REBUILDER, cluster_id="one")
    assert not await plane.topics()
