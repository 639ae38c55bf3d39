"""A log that has failed, or could not be opened, made ready to be opened again.

After a sync that failed the kernel may drop what it could not write, forget that it did, and give
the bytes out from memory as if they were safe.  So what was not sealed yet is copied to new files,
which are synced, and take the place of the old ones: what recovery then reads is on the disk.

The node serves meanwhile.  So all that takes long, above all the scan of the segments that were not
sealed, is done off the loop: `recover_off_loop` gives what opening.load then only takes over.

Not here: which log, and what becomes of one that cannot be opened (data_directory.py).
"""

import dataclasses
from functools import partial

from quipu.model.errors import QuipuError
from quipu.runtime.disk import Disk, NotFound
from quipu.runtime.disk_work import off_loop
from quipu.storage.config import LogConfig
from quipu.storage.opening import recover_or_tell
from quipu.storage.place import Memory, Place
from quipu.storage.recovery import UNFINISHED_SUFFIX, Recovered, segment_bases
from quipu.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, OpenSegments, segment_path

UNSEALED_MAX = 2  # the active segment, and the one before it (rolling, R1)


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
    place: Place, config: LogConfig, memory: Memory, now_ms: int
) -> Recovered | QuipuError:
    """What there is at `place`, or why it cannot be opened; see recovery.py.

    Nobody else may use the files meanwhile.  What is given has open files: take it, or `release`
    it.
    """
    alone = dataclasses.replace(place, opened=OpenSegments())  # the shared one is the loop's
    found: list[Recovered] = []
    try:
        await off_loop(place.disk, lambda: found.append(
            recover_or_tell(alone, config, memory, now_ms)))
    except QuipuError as error:
        return error
    for segment in found[0].segments:
        segment.share(place.opened)
    return found[0]


async def rewrite_off_loop(disk: Disk, directory: str) -> None:
    """`rewrite_unsealed`, while the loop turns; raises what it raises."""
    await off_loop(disk, partial(rewrite_unsealed, disk, directory))
