"""The scrub: reads complete segments again and again, to find bytes that a disk has changed.

One pass goes through every complete segment of every log, at `log.scrub.bytes.per.second`; the
next one begins `log.scrub.interval.ms` after it began, or when it has ended.

Invariants
    broker.partitions.C1  the event loop never waits for the disk: slices of SLICE_SIZE are checked
                          in a thread, by code that releases the interpreter's lock
    broker.partitions.C2  damage is only noted (storage/segments/damage.py); the repairs read the
                          notes
    broker.partitions.C3  the metadata log and the node's own log are read only at a start, and
                          their contents are in memory.  So their active segments are checked too,
                          and if one of these logs is damaged, it is written again from memory, and
                          the damaged files are removed

Not here: how damage is repaired (replication/batch_repairs.py).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from quipu.broker.observing.stats import Stats
from quipu.model.errors import QuipuError
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import Clock
from quipu.runtime.disks.disk import Disk
from quipu.runtime.disks.mapping import release_pages
from quipu.runtime.disks.work import off_loop
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.log import Log
from quipu.storage.segments.damage import note
from quipu.storage.segments.segment import Segment
from quipu.wire.scan_run import sound_end

SLICE_SIZE: Final = 256 << 10  # bytes checked at once, or one batch
FIRST_SECONDS_MAX: Final = 60.0  # from the start to the first pass: the node is busy then
RELEASE_SIZE: Final = 8 << 20  # mapped bytes after which a pass releases their pages

_log = logging.getLogger(__name__)


class Scrubber:
    """Checks the complete segments of all logs of one node."""

    def __init__(
        self, directory: DataDirectory, settings: BrokerSettings, clock: Clock, stats: Stats
    ) -> None:
        self._directory = directory
        self._rate = settings.log_scrub_bytes_per_second
        self._interval_seconds = settings.log_scrub_interval_ms / 1000
        self._monotonic = clock.monotonic
        self._stats = stats

    async def run(self) -> None:
        """Make one pass after the other, until cancelled; do nothing if the rate is 0."""
        if self._rate == 0:
            return
        await asyncio.sleep(min(self._interval_seconds, FIRST_SECONDS_MAX))
        while True:
            began = self._monotonic()
            await self.scrub()
            rest = began + self._interval_seconds - self._monotonic()
            await asyncio.sleep(max(rest, 1.0))

    async def scrub(self) -> None:
        """Make one pass over all logs."""
        for log in self._directory.logs():
            rewrite = self._directory.rewrites.get(log)
            try:
                if rewrite is not None:
                    await self._check_own(log, rewrite)
                    continue
                for segment in log.complete_segments():
                    await self._check(log, segment)
            except QuipuError as error:
                _log.warning("%s: the scrub goes on with the next log: %s", log.name, error)
            await asyncio.sleep(0)

    async def _check(self, log: Log, segment: Segment) -> None:
        disk = self._directory.disk
        if not _is_kept(log, segment):
            return
        view, position, log_offset = disk.map(segment.path), 0, segment.base_log
        release_at = RELEASE_SIZE
        while position < len(view):
            end = min(position + SLICE_SIZE, len(view))
            reached, reached_log = await _checked(disk, view, position, end, log_offset)
            if not _is_kept(log, segment) or segment.size != len(view):
                return  # it was removed, or replaced, meanwhile
            size = reached - position
            position, log_offset = reached, reached_log
            if position < end:
                damage = note(segment, position)  # broker.partitions.C2
                size, position = size + (damage.end if damage else end) - position, (
                    damage.end if damage else len(view))
                log_offset = damage.next_log if damage else 0
            self._stats.scrubbed_bytes += size
            if position >= release_at:
                release_pages(view, position)
                release_at = position + RELEASE_SIZE
            await asyncio.sleep(size / self._rate)

    async def _check_own(self, log: Log, rewrite: Callable[[], None]) -> None:
        """Check a log whose contents are in memory; rewrite it if it is damaged.

        Keeps broker.partitions.C3.
        """
        for segment in list(log.segments):
            view = self._directory.disk.map(segment.path)[:segment.size]
            position, log_offset = 0, segment.base_log
            while position < len(view):
                end = min(position + SLICE_SIZE, len(view))
                reached, log_offset = await _checked(
                    self._directory.disk, view, position, end, log_offset)
                self._stats.scrubbed_bytes += reached - position
                if reached < end:
                    if log.holds(segment):
                        self._stats.damaged_batches += 1
                        _log.error("%s: damaged at position %d, log offset %d: the log is written "
                                   "again from memory", segment.path, reached, log_offset)
                        rewrite()
                        self._stats.repaired_batches += 1
                    return
                await asyncio.sleep((reached - position) / self._rate)
                position = reached


def _is_kept(log: Log, segment: Segment) -> bool:
    return segment.file is None and log.holds(segment)


async def _checked(
    disk: Disk, view: memoryview, position: int, end: int, log_offset: int
) -> tuple[int, int]:
    """Call `sound_end` in a thread (broker.partitions.C1)."""
    found: list[tuple[int, int]] = []
    await off_loop(disk, lambda: found.append(sound_end(view, position, end, log_offset)))
    return found[0]
