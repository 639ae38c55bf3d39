"""The segment files of one log: started at the end, dropped at the front, cut for truncation.

Invariants
    S1  (segment.py) holds between any two neighbours, at every moment that a crash may freeze:
        files appear newest last, go oldest first, and are cut newest first
    Q1  a file that goes is renamed first, which is quick, and removed off the loop, which is not
"""

from collections.abc import Sequence
from contextlib import suppress

from quipu.model.errors import QuipuError
from quipu.runtime.disk import Buffer, Disk, DiskError, NotFound
from quipu.storage.config import LogConfig
from quipu.storage.place import Place
from quipu.storage.recovery import DELETED_SUFFIX, UNFINISHED_SUFFIX
from quipu.storage.segment import Segment, segment_path


class Segments(list[Segment]):
    """Oldest first; the last one is active."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.complete_size = 0  # bytes of all but the active one
        self._place = place

    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take over what recovery found."""
        self[:] = segments
        self.complete_size = sum(segment.size for segment in segments[:-1])

    def start(
        self,
        base_log: int,
        base_offset: int,
        parts: Sequence[Buffer],
        *,
        created_ms: int,
        config: LogConfig,
    ) -> Segment:
        """Make a new active segment whose first batch, its checkpoint, is `parts`."""
        path = segment_path(self._place.directory, base_log)
        segment = Segment(self._place.disk, self._place.opened, path, base_log)
        segment.base_offset = base_offset
        segment.created_ms = created_ms
        segment.is_new = True
        segment.trust()
        segment.set_limits(config)
        segment.file = self._place.disk.open(path, create=True)
        try:
            assert segment.file.size == 0, path  # recovery saw every file there is
            segment.file.append(parts, sum(map(len, parts)))
        except DiskError:
            segment.close()
            with suppress(DiskError):
                self._place.disk.remove(path)
            raise
        segment.start_index()
        is_indexed = segment.add_entry(base_offset, base_log, 0)
        assert is_indexed
        if self:
            self[-1].complete(base_offset, base_log)
            self.complete_size += self[-1].size
        self.append(segment)
        return segment

    def drop_front(self, count: int) -> None:
        """Remove the `count` oldest segments; their files go later (Q1)."""
        assert 0 <= count < len(self), (count, len(self))
        disk = self._place.disk
        paths = []
        for segment in self[:count]:
            self.complete_size -= segment.size
            segment.close()
            disk.rename(segment.path, segment.path + DELETED_SUFFIX)
            paths += [segment.path + DELETED_SUFFIX, segment.index_path]
        del self[:count]
        disk.submit(lambda: remove_all(disk, paths), _ignore)

    def cut(self, number: int, position: int, *, suffix: str) -> list[str]:
        """Remove everything from `position` in segment `number` on.  All files are closed after.

        What is removed is kept in files whose names end in `suffix`; gives their paths.  The
        inode of a file that may be mapped is left as it is (S4): a shorter copy replaces it.
        """
        disk, kept = self._place.disk, []
        last = self[number]
        size, unfinished = last.size, last.path + UNFINISHED_SUFFIX
        if position < size:  # first what needs room: without it, all is as it was
            disk.copy(last.path, last.stem + suffix, start=position, end=size)
            disk.copy(last.path, unfinished, start=0, end=position)
        for segment in reversed(self[number + 1 :]):
            segment.close()
            remove_all(disk, [segment.index_path])
            disk.rename(segment.path, segment.stem + suffix)
            kept.append(segment.stem + suffix)
        for segment in self:
            segment.close()
        remove_all(disk, [last.index_path])
        if position < size:
            kept.append(last.stem + suffix)
            disk.rename(unfinished, last.path)
        disk.sync_directory(self._place.directory)
        self.clear()
        self.complete_size = 0
        return kept[::-1]

    def drop_all(self) -> None:
        """Remove every segment, oldest first; the bytes of their files go later (Q1)."""
        disk, paths = self._place.disk, []
        for segment in self:
            segment.close()
            remove_all(disk, [segment.index_path])  # at once: the name may be used again
            disk.rename(segment.path, segment.path + DELETED_SUFFIX)
            paths.append(segment.path + DELETED_SUFFIX)
        if paths:
            disk.sync_directory(self._place.directory)
        self.clear()
        self.complete_size = 0
        disk.submit(lambda: remove_all(disk, paths), _ignore)

    def close(self) -> None:
        for segment in self:
            segment.close()


def remove_all(disk: Disk, paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(NotFound):
            disk.remove(path)


def _ignore(_: QuipuError | None) -> None:
    """What could not be removed is removed at the next start."""
