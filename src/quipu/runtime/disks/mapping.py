"""Memory-mapped files: by compiled code where a compiler was found, else by `mmap`.

An `mmap` holds a descriptor for as long as a view of it exists; a node with many segments, or with
slow consumers, would run out of descriptors.  The compiled mapping holds none.
"""

import mmap
from typing import Final

__all__ = ["COMPILED", "map_file", "release_pages"]

try:
    from quipu.runtime.disks._mapping import Mapping
except ImportError:
    COMPILED: Final = False
else:
    COMPILED = True  # type: ignore[misc]


def map_file(fd: int, size: int) -> memoryview:
    """The first `size` bytes of an open file, read-only; raises `OSError`."""
    if size == 0:
        return memoryview(b"")  # the system refuses an empty map
    if COMPILED:
        return memoryview(Mapping(fd, size))
    return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ))


def release_pages(view: memoryview, end: int) -> None:
    """Free the memory of the first `end` bytes of a mapped file; they stay readable."""
    mapping = view.obj
    if COMPILED and isinstance(mapping, Mapping):
        mapping.release(end)
    elif isinstance(mapping, mmap.mmap) and end > 0:
        mapping.madvise(mmap.MADV_DONTNEED, 0, min(end, len(mapping)))
