"""Open files of the machine, which may be more than there are descriptors.

A log keeps its newest segment open, and a node may have many thousand logs.  Of the files that are
open here at most `OpenFiles.count_max` have a descriptor; the others are opened again when they
are used.

Invariants
    runtime.F1  `append` writes all of its bytes or none: the bytes of a failed call are cut off
                again, and if even that fails the file accepts no more bytes
    runtime.F2  a file is never cut below a size that was mapped: accessing a mapped page past the
                end of its file ends the process
    runtime.F4  a file's descriptor is closed only when all of its bytes are synced: otherwise the
                error of a write that failed later would be lost
    runtime.F5  only the thread that uses files closes their descriptors; a file that another
                thread syncs keeps its descriptor
"""

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from quipu.model.errors import ErrorKind
from quipu.runtime.disks.errors import DiskError, mapped, mapped_sync
from quipu.runtime.disks.mapping import map_file

Buffer = bytes | bytearray | memoryview

SYNCS_KEPT_MAX: Final = 4096  # durations of syncs that metrics have not read yet
FILES_MAX: Final = 1 << 20  # with a descriptor, where no limit is known
LOOKS_MAX: Final = 512  # files that are considered when one must close its descriptor
_ASIDE: Final = -1  # in place of a descriptor: closed for now
_CLOSED: Final = -2


class OpenFiles:
    """The files that are open, and which of them have a descriptor."""

    def __init__(self, count_max: int = FILES_MAX) -> None:
        self.count_max = count_max
        # How long syncs took; threads append, and metrics remove.
        self.sync_seconds: deque[float] = deque(maxlen=SYNCS_KEPT_MAX)
        self.lock = threading.Lock()  # guards which files have a descriptor or are being synced
        self._owner = threading.get_ident()
        # Files with a descriptor, the next to consider first; a dict finds its first key slowly.
        self._files: OrderedDict[RealFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: "RealFile") -> None:
        """Note that `file` has a descriptor; this may close that of another file (runtime.F5)."""
        self._files[file] = None
        if len(self._files) > self.count_max and threading.get_ident() == self._owner:
            self._make_room(file)

    def forget(self, file: "RealFile") -> None:
        self._files.pop(file, None)

    def _make_room(self, newcomer: "RealFile") -> None:
        """Close the descriptor of the first synced file that was not used since it was last
        considered; if there is none, sync one at once and close its descriptor (runtime.F4).

        At most LOOKS_MAX files are considered.  If all of them are in use, as with thousands of
        logs that are written to, one of those is synced and closed.
        """
        used: RealFile | None = None
        unsynced: RealFile | None = None
        for _ in range(min(LOOKS_MAX, 2 * len(self._files))):
            file = next(iter(self._files))
            self._files.move_to_end(file)
            if file is newcomer:
                continue
            if file.was_used:
                file.was_used = False
                used = used or file
            elif file.is_synced:
                if file.set_aside():
                    return
            elif unsynced is None:
                unsynced = file
        last = unsynced or used
        if last is not None and not last.set_aside():
            last.sync_aside()
            last.set_aside()


class RealFile:
    """A file of the operating system, opened for appending."""

    __slots__ = ("_failed_sync", "_fd", "_files", "_pins", "_synced_size", "mapped_size", "path",
                 "size", "was_used")

    def __init__(self, path: str, files: OpenFiles, *, create: bool) -> None:
        self.path = path
        self.mapped_size = 0
        self.was_used = True  # since `_make_room` last considered it
        self._files = files
        self._failed_sync: DiskError | None = None  # of `sync_aside`; raised by the next sync
        self._pins = 0  # syncs under way
        self._fd = _open(path, create=create)
        self.size = os.fstat(self._fd).st_size
        self._synced_size = -1  # the file's size when it was last synced
        files.add(self)

    # -- descriptors

    @property
    def is_synced(self) -> bool:
        return self._synced_size == self.size and self._failed_sync is None

    def set_aside(self) -> bool:
        """Close the descriptor; False if the file is being synced or is not synced (runtime.F5)."""
        with self._files.lock:
            if self._pins or not self.is_synced:
                return False
            fd, self._fd = self._fd, _ASIDE
            self._files.forget(self)
        os.close(fd)
        return True

    def sync_aside(self) -> None:
        """Sync before the descriptor is closed; if this fails, the next sync raises the error."""
        try:
            self.sync()
        except DiskError as error:
            self._failed_sync = error

    def _get_back(self) -> int:
        """Open the file again, and return its descriptor."""
        if self._fd == _CLOSED:
            raise DiskError(f"{self.path}: is closed")
        fd = _open(self.path, create=False)
        if os.fstat(fd).st_size != self.size:
            os.close(fd)
            raise DiskError(f"{self.path}: is no longer {self.size} bytes long; "
                            "another process changed it")
        self._fd = fd
        self._files.add(self)
        return fd

    # -- contents

    def append(self, buffers: Sequence[Buffer], size: int) -> None:
        fd = self._fd
        if fd < 0:
            fd = self._get_back()
        self.was_used = True
        try:
            written = os.writev(fd, buffers)
        except OSError as error:
            raise self._undo(error) from error
        if written != size:
            self._append_rest(buffers, size, written)
        self.size += size

    def _append_rest(self, buffers: Sequence[Buffer], size: int, written: int) -> None:
        """Continue after a short write: the disk is full, or a signal interrupted the call."""
        rest = memoryview(b"".join(buffers))
        assert len(rest) == size, (len(rest), size)
        try:
            while written < size:
                written += os.write(self._fd, rest[written:])
        except OSError as error:
            raise self._undo(error) from error

    def _undo(self, error: OSError) -> DiskError:
        """Cut off the bytes of a failed append (runtime.F1)."""
        try:
            os.ftruncate(self._fd, self.size)
        except OSError:
            self.close()  # the next write raises
            return DiskError(f"{self.path}: cannot be cut back to {self.size} bytes after a "
                             f"failed write ({error.strerror}); check the disk",
                             kind=ErrorKind.CORRUPT)
        return mapped(error, self.path)

    def patch(self, data: Buffer, position: int) -> None:
        assert self.mapped_size == 0, self.path
        assert 0 <= position <= self.size - len(data), (self.path, position)
        rest = memoryview(data)
        self._synced_size = -1
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)  # the other one only appends
            try:
                while rest:
                    written = os.pwrite(fd, rest, position)
                    rest, position = rest[written:], position + written
            finally:
                os.close(fd)
        except OSError as error:
            raise mapped(error, self.path) from error

    def read(self, size: int, position: int) -> bytes:
        fd = self._fd
        if fd < 0:
            fd = self._get_back()
        self.was_used = True
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise mapped(error, self.path) from error

    def map(self) -> memoryview:
        fd = self._fd
        if fd < 0:
            fd = self._get_back()
        try:
            view = map_file(fd, self.size)
        except OSError as error:
            raise mapped(error, self.path) from error
        self.mapped_size = max(self.mapped_size, self.size)
        return view

    def truncate(self, size: int) -> None:
        # runtime.F2
        assert self.mapped_size <= size <= self.size, (self.mapped_size, size, self.size)
        fd = self._fd
        if fd < 0:
            fd = self._get_back()
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise mapped(error, self.path) from error
        self.size, self._synced_size = size, -1

    def sync(self) -> None:
        with self._files.lock:
            if (failed := self._failed_sync) is not None:
                raise failed
            if self._fd == _ASIDE:
                return  # runtime.F4
            self._pins += 1  # runtime.F5
            fd, size = self._fd, self.size
        begun = time.perf_counter()
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise mapped_sync(error, self.path) from error
        finally:
            with self._files.lock:
                self._pins -= 1
        self._synced_size = size
        self._files.sync_seconds.append(time.perf_counter() - begun)

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        self._files.forget(self)
        if fd >= 0:
            os.close(fd)


def _open(path: str, *, create: bool) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise mapped(error, path) from error
