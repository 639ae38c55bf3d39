"""A log that has failed, or could not be opened, made ready to be opened again.

After a sync that failed the kernel may drop what it could not write, forget that it did, and return
the bytes from memory as if they were durable.  So what was not sealed yet is copied to new files,
which are synced, and take the place of the old ones: what recovery then reads is on the disk.

The node serves meanwhile.  So all that takes long, above all the scan of the segments that were not
sealed, is done off the loop: `recover_off_loop` returns what opening.py then takes over.

Not here: which log, and what becomes of one that cannot be opened (directory/data_directory.py).
"""

import dataclasses
from functools import partial
from typing import Final, NamedTuple

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Disk, NotFound
from quipu.runtime.disks.work import off_loop
from quipu.storage.config import LogConfig
from quipu.storage.log_directory import LogDirectory, RecoveryPoint
from quipu.storage.recovery import UNFINISHED_SUFFIX, Recovered, recover, segment_bases
from quipu.storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, OpenSegments, segment_path

UNSEALED_MAX: Final = 2  # the active segment, and the one before it (storage.R1)


class PreparedLog(NamedTuple):
    """A failed log that can be opened again: what recovery found of it, off the loop."""

    recovery: RecoveryPoint
    found: Recovered | QuipuError  # or why it cannot be opened

    def release(self) -> None:
        """Close what was found: the log is not opened after all."""
        if isinstance(self.found, Recovered):
            self.found.release()


def rewrite_unsealed(disk: Disk, directory: str) -> None:
    """Give the segments that have no index new files; blocks, and may be repeated at any time."""
    try:
        names = list(disk.list(directory))
    except NotFound:
        return
    for base_log in segment_bases(names)[-UNSEALED_MAX:]:
        path = segment_path(directory, base_log)
        if f"{path.rpartition('/')[2].removesuffix(LOG_SUFFIX)}{INDEX_SUFFIX}" in names:
            continue
        disk.copy(path, path + UNFINISHED_SUFFIX, start=0, end=disk.size(path))
        disk.rename(path + UNFINISHED_SUFFIX, path)
    disk.sync_directory(directory)


async def recover_off_loop(
    directory: LogDirectory, config: LogConfig, recovery: RecoveryPoint, now_ms: int
) -> Recovered | QuipuError:
    """Recover the log in `directory` in a thread; returns what was found, or why it cannot be.

    Nothing else may use the files meanwhile.  What is returned has open files: take it over, or
    `release` it.
    """
    # The shared `OpenSegments` belongs to the loop; this runs in a thread.
    alone = dataclasses.replace(directory, open_segments=OpenSegments())
    found: list[Recovered] = []
    try:
        await off_loop(directory.disk, lambda: found.append(
            recover(alone, config, recovery, now_ms)))
    except QuipuError as error:
        return error
    assert len(found) == 1, directory.name
    for segment in found[0].segments:
        segment.share(directory.open_segments)
    return found[0]


async def rewrite_off_loop(disk: Disk, directory: str) -> None:
    """`rewrite_unsealed`, while the loop turns; raises what it raises."""
    await off_loop(disk, partial(rewrite_unsealed, disk, directory))
