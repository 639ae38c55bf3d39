"""The scrub: every complete segment is looked at, at the rate that it is given."""

import asyncio
import dataclasses

import pytest

from quipu.broker.observing.stats import Stats
from quipu.broker.partitions.scrubbing import Scrubber
from quipu.model.broker_settings import BrokerSettings
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.log import Log
from tests.looped import looped
from tests.storage.builders import TOPIC_ID, append

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1000)
RATE = 1_000_000


def filled() -> tuple[DataDirectory, SimDisk, list[Log]]:
    disk = SimDisk()
    directory = DataDirectory.open(disk, "data", ManualClock())
    logs = [directory.open_log(f"t-{number}", CONFIG, topic_id=TOPIC_ID) for number in range(3)]
    for log in logs:
        for _ in range(40):
            append(log, [bytes(1000)] * 2)
        log.flusher.flush_now()
    return directory, disk, logs


def scrubber(directory: DataDirectory, stats: Stats, rate: int = RATE) -> Scrubber:
    settings = dataclasses.replace(BrokerSettings(), log_scrub_bytes_per_second=rate)
    return Scrubber(directory, settings, ManualClock(), stats)


@looped
async def test_damage_in_any_complete_segment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """T12: broker.partitions.C1, broker.partitions.C2; several in one segment too; the active one
    is not looked at, nor a log that failed.
    """
    directory, disk, logs = filled()
    flipped = {(log, number): 2 for log in logs[:2] for number in (0, 2)}
    for log, number in flipped:
        segment = log.segments[number]
        disk.flip(segment.path, 5000)
        disk.flip(segment.path, segment.size - 10)
    disk.flip(logs[0].segments[-1].path, 500)
    disk.flip(logs[2].segments[0].path, 500)
    logs[2].fail(ValueError("gone"))  # type: ignore[arg-type]
    slept: list[float] = []
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: _note(slept, seconds))
    stats = Stats()
    await scrubber(directory, stats).scrub()
    found = {(log, number): len(segment.damage) for log in logs[:2]
             for number, segment in enumerate(log.segments) if segment.damage}
    assert found == flipped
    assert set(directory.opened.damaged) == {log.segments[number] for log, number in flipped}
    (own,) = directory.rewrites  # of which all is looked at
    size = own.size_bytes + sum(
        segment.size for log in logs[:2] for segment in log.segments[:-1])
    assert stats.scrubbed_bytes == size
    assert sum(slept) == pytest.approx(size / RATE)  # at the rate of the setting


async def _note(slept: list[float], seconds: float) -> None:
    slept.append(seconds)


@looped
async def test_a_segment_that_goes_meanwhile_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T12: by retention, between two slices."""
    directory, disk, logs = filled()
    for log in logs:
        disk.flip(log.segments[0].path, 5000)

    async def drop(_: float) -> None:
        for log in logs:
            if len(log.segments) > 1:
                log.drop_segments_before(log.log_end)

    await drop(0)
    monkeypatch.setattr(asyncio, "sleep", drop)
    await scrubber(directory, Stats()).scrub()
    assert not directory.opened.damaged


@looped
async def test_a_rate_of_zero_is_none() -> None:
    """T12: it can be turned off."""
    directory, _, _ = filled()
    stats = Stats()
    await asyncio.wait_for(scrubber(directory, stats, rate=0).run(), 5)
    assert stats.scrubbed_bytes == 0


@looped
async def test_the_nodes_own_memory_is_written_anew_wherever_it_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T12: broker.partitions.C3; also in the segment that is active; the next start knows all that
    this one knew.
    """
    monkeypatch.setattr(asyncio, "sleep", lambda _: _note([], 0))
    directory, disk, logs = filled()
    directory.remember()
    (own,) = directory.rewrites
    known = dict(directory._node_log.logs)
    assert len(known) == len(logs)
    stats = Stats()
    for position in range(0, own.segments[-1].size, 7):
        path = own.segments[-1].path
        disk.flip(path, position)
        await scrubber(directory, stats).scrub()
        assert not disk.exists(path)
        await scrubber(directory, stats).scrub()
    assert stats.damaged_batches == stats.repaired_batches > 20
    disk.kill()
    again = DataDirectory.open(disk, "data", ManualClock())
    assert again._node_log.logs == known
