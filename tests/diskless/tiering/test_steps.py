"""Steps move old records to the tier, whoever takes them, and wherever an owner ends."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.tiering.copying import copy_segment
from quipu.diskless.tiering.executor import in_thread
from quipu.diskless.tiering.steps import ClaimLost, LogStep
from quipu.model.ids import Offset
from quipu.remote.metadata.errors import FencedLeader
from quipu.remote.metadata.states import COPY_FINISHED, COPY_STARTED
from quipu.wire.record_batch import Record, encode_batch
from tests.diskless.tiering.world import AGED_MS, LEASE_MS, TOPIC, World


def batch(world: World, first: int, count: int = 3) -> bytes:
    """A batch of records whose values are numbers from `first` on."""
    return bytes(encode_batch([Record(None, b"%d" % (first + i), (), world.clock.now_ms())
                               for i in range(count)]))


async def filled(world: World, objects: int = 6, partitions: int = 1) -> None:
    """Objects with two batches for each partition, a second apart; then time passes."""
    for number in range(objects):
        await world.commit({
            partition: [batch(world, 6 * number), batch(world, 6 * number + 3)]
            for partition in range(partitions)})
        world.clock.advance_ms(1_000)
    world.clock.advance_ms(AGED_MS)


def run(
    folder: Path, test: Callable[[World], Awaitable[None]], *, partitions: int = 1
) -> None:
    async def whole() -> None:
        world = World(MemoryControlPlane(), folder)
        await world.open(partitions)
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(whole())


def test_old_records_move_and_stay_readable(tmp_path: Path) -> None:
    """D8: rows and bytes leave the control plane; every record is read over the boundary."""

    async def test(world: World) -> None:
        await filled(world)
        await world.commit({0: [batch(world, 36)]})  # young: it stays
        before, expected = await world.bounds(), await world.records()

        made = await world.step(segment_size=500)

        after = await world.bounds()
        assert made is not None
        assert made > 1
        assert after.diskless_start_offset == 36
        assert 0 < after.size < before.size
        assert await world.records() == expected
        assert [each.state for each in await world.tier()] == [COPY_FINISHED] * made
        assert [each.segment_leader_epochs for each in await world.tier()] == [
            {0: each.start_offset} for each in await world.tier()]
        assert await world.step() == 0  # nothing is left to do

    run(tmp_path, test)


def test_only_one_owner_at_a_time(tmp_path: Path) -> None:
    """D8: a log is claimed; a claim that was given up, or has run out, passes to the next."""

    async def test(world: World) -> None:
        await filled(world)
        held = await LogStep.claimed(world.services("one"), world.log(), TOPIC)
        assert held is not None
        assert await world.step(owner="two") is None

        await held.end()
        second = await LogStep.claimed(world.services("two"), world.log(), TOPIC)
        assert second is not None
        assert second.claim.epoch > held.claim.epoch
        world.clock.advance_ms(LEASE_MS + 1)
        assert await world.step(owner="three") == 2

    run(tmp_path, test)


def test_an_owner_without_a_claim_changes_nothing(tmp_path: Path) -> None:
    """D8: a process that was paused is refused by metadata and control plane (diskless.S2)."""

    async def test(world: World) -> None:
        await filled(world)
        expected = await world.records()
        late = await LogStep.claimed(world.services("late"), world.log(), TOPIC)
        assert late is not None
        (first, *_) = await late.planned(world.rules(500), world.clock.now_ms() - AGED_MS)
        world.clock.advance_ms(LEASE_MS + 1)
        late_metadata, world.metadata = world.metadata, world.make_metadata()
        await world.metadata.open()
        made = await world.step(owner="next", segment_size=500)

        with pytest.raises(ClaimLost):
            await late.renew()
        with pytest.raises(FencedLeader):
            await late.finish(first.plan, b"")
        with pytest.raises(ClaimLost):
            await late._note(Offset(36))
        await late_metadata.close()
        assert len(await world.tier()) == made
        assert await world.records() == expected

    run(tmp_path, test)


def test_a_copy_that_is_whole_is_taken_over(tmp_path: Path) -> None:
    """D8: the next owner does not copy again what the last one has stored (resumable)."""

    async def test(world: World) -> None:
        await filled(world)
        step = await LogStep.claimed(world.services("dies"), world.log(), TOPIC)
        assert step is not None
        planned = await step.planned(world.rules(500), world.clock.now_ms() - AGED_MS)
        await copy_segment(planned[1].plan, world.objects, world.storage, in_thread)
        stored = await world.segments.list()
        world.clock.advance_ms(LEASE_MS + 1)

        await world.step(owner="heir", segment_size=500)

        ids = {each.segment_id.id for each in await world.tier()}
        assert planned[1].plan.segment_id in ids  # the copy of the last owner
        assert planned[0].plan.segment_id not in ids  # it was never stored
        again = {each.key: each for each in (await world.segments.list()).objects}
        assert again[stored.objects[0].key] == stored.objects[0]
        assert len(again) == len(ids)
        assert all(each.state is COPY_FINISHED for each in await world.tier())
        await world.records()

    run(tmp_path, test)


def test_what_was_begun_and_is_not_wanted_any_more_is_deleted(tmp_path: Path) -> None:
    """D8: copies that were begun with other sizes leave nothing (diskless.S3)."""

    async def test(world: World) -> None:
        await filled(world)
        step = await LogStep.claimed(world.services("dies"), world.log(), TOPIC)
        assert step is not None
        begun = await step.planned(world.rules(500), world.clock.now_ms() - AGED_MS)
        assert [each.state for each in await world.tier()] == [COPY_STARTED] * len(begun)
        world.clock.advance_ms(LEASE_MS + 1)

        assert await world.step(owner="heir", segment_size=100_000) == 1

        assert [each.state for each in await world.tier()] == [COPY_FINISHED]
        assert len((await world.segments.list()).objects) == 1

    run(tmp_path, test)


class _Dead(BaseException):
    """The end of a process."""


class _Mortal:
    """Passes calls on until a given one, before or after which the process ends."""

    def __init__(self, inner: object, deaths: "_Deaths") -> None:
        self._inner = inner
        self._deaths = deaths

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._deaths.count()
            result = await found(*args, **kwargs)
            self._deaths.count()
            return result

        return call


class _Deaths:
    def __init__(self, left: int) -> None:
        self.left = left

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Dead


def test_an_owner_may_end_anywhere(tmp_path: Path) -> None:
    """D8: before and after every single call, and still every record is there once."""

    async def dies_after(calls: int, folder: Path) -> bool:
        world = World(MemoryControlPlane(), folder)
        await world.open()
        await filled(world, objects=3)
        expected = await world.records()
        deaths = _Deaths(calls)
        services = world.services("dies")
        mortal = services.__class__(
            plane=_Mortal(services.plane, deaths), metadata=_Mortal(services.metadata, deaths),
            leading=services.leading, storage=_Mortal(services.storage, deaths),
            store=_Mortal(world.segments, deaths), clock=world.clock, broker_id=-1, owner="dies",
            lease_ms=LEASE_MS)
        is_done = True
        try:
            await world.step(services=mortal, segment_size=500)
        except _Dead:
            is_done = False
        assert await world.records() == expected  # diskless.S1
        world.clock.advance_ms(LEASE_MS + 1)
        await world.step(owner="heir", segment_size=500)
        assert await world.records() == expected
        assert (await world.bounds()).size == 0
        tier = await world.tier()
        assert all(each.state is COPY_FINISHED for each in tier)
        assert len((await world.segments.list()).objects) == len(tier)
        await world.close()
        return is_done

    for calls in range(200):
        (folder := tmp_path / str(calls)).mkdir()
        if asyncio.run(dies_after(calls, folder)):
            assert calls > 20
            return
    raise AssertionError("the step never ends")
