"""Many logs at once: the driver claims, plans and registers; copies are made elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from quipu.diskless.tiering.executor import CopyResult, CopyTask
from quipu.diskless.tiering.steps import LogStep
from tests.diskless.tiering.file_world import PARTITIONS, FileWorld, copy_in_order
from tests.diskless.tiering.world import TOPIC


def run(folder: Path, test: Callable[[FileWorld], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = FileWorld(folder)
        await world.open(PARTITIONS)
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(whole())


def test_a_job_moves_what_is_old_of_all_partitions(tmp_path: Path) -> None:
    """D8: many partitions at once; the control plane shrinks, and all records stay readable."""

    async def test(world: FileWorld) -> None:
        await world.fill()
        expected = [await world.records(each) for each in range(PARTITIONS)]

        report = await world.run_job()

        assert report.errors == []
        assert (report.logs, report.busy) == (PARTITIONS, [])
        assert report.segments == len(world.segment_bytes())
        for partition in range(PARTITIONS):
            assert (await world.bounds(partition)).size == 0
            assert await world.records(partition) == expected[partition]
        assert (await world.run_job()).segments == 0

    run(tmp_path, test)


def test_a_failed_copy_keeps_only_what_follows_it(tmp_path: Path) -> None:
    """D8: segments of a log are finished in order; other logs go on (diskless.J1)."""

    def one_fails(tasks: Sequence[CopyTask]) -> list[CopyResult]:
        found = copy_in_order(tasks)
        bad = sorted(each.plan.start_offset for each in found if each.plan.log.partition == 1)[1]
        return [CopyResult(each.plan, None, "the executor is lost")
                if (each.plan.log.partition, each.plan.start_offset) == (1, bad) else each
                for each in found]

    async def test(world: FileWorld) -> None:
        await world.fill()
        expected = await world.records(1)

        report = await world.run_job(one_fails)

        assert ["the executor is lost" in each for each in report.errors] == [True]
        assert (await world.bounds(0)).size == (await world.bounds(2)).size == 0
        assert (await world.bounds(1)).size > 0
        assert await world.records(1) == expected
        again = await world.run_job()
        assert again.taken_over > 0  # what was stored after the failed one
        assert (await world.bounds(1)).size == 0
        assert await world.records(1) == expected

    run(tmp_path, test)


def test_a_log_of_another_owner_is_left_to_it(tmp_path: Path) -> None:
    """D8: jobs and brokers share the logs by claims."""

    async def test(world: FileWorld) -> None:
        await world.fill()
        held = await LogStep.claimed(world.services("broker"), world.log(2), TOPIC)
        assert held is not None

        report = await world.run_job()

        assert report.busy == [world.log(2)]
        assert (await world.bounds(0)).size == 0
        assert (await world.bounds(2)).size > 0

    run(tmp_path, test)


def test_a_damaged_object_is_an_error_of_its_log(tmp_path: Path) -> None:
    """D8: a damaged batch does not reach the tier, and keeps no other log."""

    async def test(world: FileWorld) -> None:
        await world.fill(objects=2)
        (found,) = [run for run in await world.plane.aged_runs(world.log(1), 1 << 62)
                    if run.base_offset == 0]
        data = bytearray(await world.objects.get(found.key))
        data[found.position + 70] ^= 1
        await world.objects.put(found.key, [data])

        report = await world.run_job()

        assert ["CorruptObject" in each for each in report.errors] == [True]
        assert (await world.bounds(1)).diskless_start_offset == 0
        assert (await world.bounds(2)).size == 0

    run(tmp_path, test)


def test_a_job_and_a_broker_make_the_same_bytes(tmp_path: Path) -> None:
    """D8: the segments of a job equal those of steps that are taken one by one."""

    async def by_job(world: FileWorld) -> None:
        await world.fill()
        await world.run_job()
        made["job"] = world.segment_bytes()

    async def by_steps(world: FileWorld) -> None:
        await world.fill()
        for partition in range(PARTITIONS):
            while await world.step(partition, owner="broker"):
                pass
        made["steps"] = world.segment_bytes()

    made: dict[str, dict[str, bytes]] = {}
    run(tmp_path / "job", by_job)
    run(tmp_path / "steps", by_steps)
    assert made["job"] == made["steps"]
    assert len(made["job"]) > PARTITIONS
