"""`quipu diskless tier` on Spark: the bytes of a broker's own steps, also if a job is killed."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quipu.model.ids import ZERO_UUID
from quipu.remote.segments.footer import SegmentFooter, decode_footer
from quipu.remote.segments.pointer import TRAILER_SIZE, decode_trailer
from tests.diskless.tiering.file_world import PARTITIONS, FileWorld
from tests.harness.progress import wait_for

SMALL = ("--set", "spark.driver.memory=512m", "--set",
         "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")


def in_world(folder: Path, work: Callable[[FileWorld], Awaitable[None]]) -> FileWorld:
    """Do `work` in a world that is filled; it is closed afterwards, for other processes."""
    world = FileWorld(folder)

    async def whole() -> None:
        await world.open(PARTITIONS)
        try:
            await work(world)
        finally:
            await world.close()

    asyncio.run(whole())
    return world


def moved_inline(folder: Path, *, objects: int) -> dict[str, bytes]:
    """The segments that steps make which are taken one by one."""

    async def work(world: FileWorld) -> None:
        await world.fill(objects)
        for partition in range(PARTITIONS):
            while await world.step(partition, owner="broker"):
                pass

    return in_world(folder, work).segment_bytes()


def read_all(folder: Path) -> list[list[tuple[int, bytes | None]]]:
    found: list[list[tuple[int, bytes | None]]] = []

    async def work(world: FileWorld) -> None:
        found.extend([await world.records(each) for each in range(PARTITIONS)])

    in_world(folder, work)
    return found


def run_command(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def contents(segments: dict[str, bytes]) -> dict[str, tuple[bytes, SegmentFooter]]:
    """Segments without their ids, which tell under which claim they were made."""
    found = {}
    for name, data in segments.items():
        position, size, _ = decode_trailer(data[-TRAILER_SIZE:])
        footer = decode_footer(data[position : position + size], position=position)
        found[name] = data[:position], footer._replace(
            name=footer.name._replace(segment_id=ZERO_UUID))
    return found


@pytest.mark.timeout(900)  # waits are by progress; this is for what hangs
def test_a_killed_job_is_continued_and_gives_the_same_bytes(tmp_path: Path) -> None:
    """D8: SIGKILL of the driver half-way; the next job takes over what the first one copied."""
    expected = moved_inline(tmp_path / "inline", objects=30)
    world = in_world(tmp_path / "job", lambda each: each.fill(30))
    before = read_all(tmp_path / "job")

    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(world.command("--master", "local[1]", *SMALL), stdout=log,
                               stderr=log, start_new_session=True)
    try:
        wait_for(lambda: len(world.segment_bytes()) >= 2 or job.poll() is not None,
                 progress=lambda: (tmp_path / "log").stat().st_size, pause=0.01,
                 what=(tmp_path / "log").read_text)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    copied = len(world.segment_bytes())
    assert 2 <= copied < len(expected)
    assert read_all(tmp_path / "job") == before

    report = run_command(world.command("--master", "local[2]", *SMALL))

    assert report["errors"] == report["busy"] == []
    assert report["taken_over"] >= 1
    assert report["segments"] == len(expected)
    assert contents(world.segment_bytes()) == contents(expected)
    assert read_all(tmp_path / "job") == before
