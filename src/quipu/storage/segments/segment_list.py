"""The segment files of one log: started at the end, dropped at the front, cut for truncation.

Invariants
    storage.S6  storage.S1 holds between any two neighbours, at every moment that a crash may
        freeze: files appear newest last, go oldest first, and are cut newest first
    storage.S7  a file that goes is renamed first, which is quick, and removed off the loop, which
        is not
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Buffer, Disk, DiskError, NotFound
from quipu.storage.config import LogConfig
from quipu.storage.log_directory import LogDirectory
from quipu.storage.recovery import DELETED_SUFFIX, UNFINISHED_SUFFIX
from quipu.storage.segments.segment import Segment, segment_path
from quipu.wire.record_batch import BatchHeader
from quipu.wire.stored_batch import StoredHeader


class FirstBatch(NamedTuple):
    """The first batch of a segment, a checkpoint, as it is written."""

    parts: tuple[Buffer, ...]
    header: BatchHeader | StoredHeader


class SegmentList(list[Segment]):
    """Oldest first; the last one is active."""

    def __init__(self, directory: LogDirectory) -> None:
        super().__init__()
        self.complete_size = 0  # bytes of all but the active one
        self.superseded: list[str] = []  # files that a compacted segment replaces, not removed yet
        self._directory = directory

    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take over what recovery found."""
        self[:] = segments
        for segment, after in pairwise(segments):
            assert segment.log_end == after.base_log, after.path  # storage.S1
        self.complete_size = sum(segment.size for segment in segments[:-1])

    def start(
        self, base_log: int, base_offset: int, first: FirstBatch, config: LogConfig
    ) -> Segment:
        """Make a new active segment, with its first batch in it."""
        assert not self or base_log > self[-1].base_log, base_log  # storage.S6
        path = segment_path(self._directory.path, base_log)
        segment = Segment(self._directory.disk, self._directory.open_segments, path, base_log)
        segment.base_offset = base_offset
        segment.created_ms = first.header.base_timestamp
        segment.checkpoint_log_end = base_log + first.header.last_offset_delta + 1
        segment.trust()
        segment.set_limits(config)
        segment.file = self._directory.disk.open(path, create=True)
        try:
            assert segment.file.size == 0, path  # recovery saw every file there is
            segment.file.append(first.parts, sum(map(len, first.parts)))
        except DiskError:
            segment.close()
            with suppress(DiskError):
                self._directory.disk.remove(path)
            raise
        segment.start_index()
        is_indexed = segment.add_entry(base_offset, base_log, 0)
        assert is_indexed, path
        if self:
            self[-1].complete(base_offset, base_log)
            self.complete_size += self[-1].size
            assert self[-1].log_end == segment.base_log, path  # storage.S1
        self.append(segment)
        return segment

    def replace(self, number: int, count: int, segment: Segment) -> None:
        """Have `segment`, whose file has the name of the first, in place of `count` segments.

        Until the names are durable, the files of the others stay: recovery knows what to do with
        them (storage.KS1).
        """
        replaced = self[number : number + count]
        assert number + count < len(self), (number, count)  # the active one is not compacted
        assert replaced[0].path == segment.path, segment.path
        for each in replaced:
            self.complete_size -= each.size
            each.close()
            if each.path != segment.path:
                self.superseded += [each.path, each.index_path]
        self[number : number + count] = [segment]
        self.complete_size += segment.size
        assert segment.log_end == self[number + 1].base_log, segment.path  # storage.S1
        disk, path, paths = self._directory.disk, self._directory.path, list(self.superseded)

        def remove() -> None:
            disk.sync_directory(path)
            remove_all(disk, paths)

        def removed(error: QuipuError | None) -> None:
            if error is None:
                self.superseded = [each for each in self.superseded if each not in paths]

        disk.submit(remove, removed)

    def recount(self) -> None:
        """Add up the sizes again: a repair has changed one."""
        self.complete_size = sum(segment.size for segment in self[:-1])

    def remove_superseded(self) -> None:
        """Remove what compaction has replaced, now: names are about to be used again."""
        if self.superseded:
            self._directory.disk.sync_directory(self._directory.path)
            remove_all(self._directory.disk, self.superseded)
            self.superseded = []

    def drop_front(self, count: int) -> None:
        """Remove the `count` oldest segments; their files go later (storage.S7)."""
        assert 0 <= count < len(self), (count, len(self))
        disk = self._directory.disk
        paths = []
        for segment in self[:count]:
            self.complete_size -= segment.size
            segment.close()
            disk.rename(segment.path, segment.path + DELETED_SUFFIX)
            paths += [segment.path + DELETED_SUFFIX, segment.index_path]
        del self[:count]
        assert self.complete_size >= 0, self.complete_size
        disk.submit(lambda: remove_all(disk, paths), _ignore)

    def cut(self, number: int, position: int, *, suffix: str) -> list[str]:
        """Remove everything from `position` in segment `number` on.  All files are closed after.

        What is removed is kept in files whose names end in `suffix`; returns their paths.  The
        inode of a file that may be mapped stays as it is (storage.S4): a shorter copy replaces it.
        """
        self.remove_superseded()
        disk, kept = self._directory.disk, []
        assert 0 <= number < len(self), (number, len(self))
        last = self[number]
        assert 0 < position <= last.size, (last.path, position)
        size, unfinished = last.size, last.path + UNFINISHED_SUFFIX
        if position < size:  # first what needs room: without it, all is as it was
            disk.copy(last.path, last.stem + suffix, start=position, end=size)
            disk.copy(last.path, unfinished, start=0, end=position)
        for segment in reversed(self[number + 1 :]):  # storage.S6: newest first
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
        disk.sync_directory(self._directory.path)
        self.clear()
        self.complete_size = 0
        return kept[::-1]

    def drop_all(self) -> None:
        """Remove every segment, oldest first; the bytes of their files go later (storage.S7)."""
        self.remove_superseded()
        disk, paths = self._directory.disk, []
        for segment in self:
            segment.close()
            remove_all(disk, [segment.index_path])  # at once: the name may be used again
            disk.rename(segment.path, segment.path + DELETED_SUFFIX)
            paths.append(segment.path + DELETED_SUFFIX)
        if paths:
            disk.sync_directory(self._directory.path)
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
