"""Pages of mapped files: let go of what was read, so that a long walk stays small."""

import mmap


def release_pages(view: memoryview, end: int) -> None:
    """Give back the memory of the first `end` bytes of a mapped file; they can be read again."""
    mapping = view.obj
    if isinstance(mapping, mmap.mmap) and end > 0:
        mapping.madvise(mmap.MADV_DONTNEED, 0, min(end, len(mapping)))
