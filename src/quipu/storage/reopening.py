"""A log that has failed, made ready to be opened again.

After a sync that failed the kernel may drop what it could not write, forget that it did, and give
the bytes out from memory as if they were safe.  So what was not sealed yet is copied to new files,
which are synced, and take the place of the old ones: what recovery then reads is on the disk.

Not here: which log, and what becomes of one that cannot be opened (data_directory.py).
"""

from quipu.runtime.disk import Disk, NotFound
from quipu.storage.recovery import UNFINISHED_SUFFIX, segment_bases
from quipu.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_path

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
