"""Open files of the machine, more of them than there are descriptors.

A log keeps its newest segment open, and a node may have many thousand logs.  Of the files that are
open here at most `OpenFiles.count_max` have a descriptor; the others get theirs back when they are
used again.

Invariants
    F1  `append` writes all of its bytes or none: what a failed call left behind is cut off again,
        and if even that fails the file takes no more bytes
    F2  a file is never cut below a size that was mapped: touching a mapped page past the end of
        its file ends the process
    F4  a file gives up its descriptor only when all of its bytes were synced: whoever syncs it next
        must hear of every write that failed
    F5  descriptors are given up by the thread that uses them, and by no other; a thread that syncs
        a file keeps its descriptor where it is
"""

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from quipu.model.errors import Kind
from quipu.runtime.disk_errors import DiskError, mapped, mapped_sync
from quipu.runtime.mapping import map_file

Buffer = bytes | bytearray | memoryview

SYNCS_KEPT_MAX: Final = 4096  # times of syncs that nobody has asked for yet
FILES_MAX: Final = 1 << 20  # with a descriptor, where no limit is known
LOOKS_MAX: Final = 512  # files that are looked at for one that gives up its descriptor
_ASIDE: Final = -1  # in the place of a descriptor: given up for now
_CLOSED: Final = -2


class OpenFiles:
    """The files that are open, and which of them have a descriptor."""

    def __init__(self, count_max: int = FILES_MAX) -> None:
        self.count_max = count_max
        # How long syncs took; threads add, and whoever shows metrics takes them away.
        self.sync_seconds: deque[float] = deque(maxlen=SYNCS_KEPT_MAX)
        self.lock = threading.Lock()  # of who has a descriptor, and which are being synced
        self._owner = threading.get_ident()
        # With a descriptor; the next to be looked at first.  A dict would be slow to take that.
        self._files: OrderedDict[RealFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: "RealFile") -> None:
        """`file` has a descriptor now; another one may have to give up its own (F5)."""
        self._files[file] = None
        if len(self._files) > self.count_max and threading.get_ident() == self._owner:
            self._make_room(file)

    def forget(self, file: "RealFile") -> None:
        self._files.pop(file, None)

    def _make_room(self, newcomer: "RealFile") -> None:
        """Of those that were not used since they were last looked at, the first that is synced
        gives up its descriptor; if none is, one is synced here and now (F4).

        No more than LOOKS_MAX are looked at: with thousands of logs that are being written to, all
        may be in use.  Then one of those gives up its own.
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
        self.was_used = True  # since it was last asked to give up its descriptor
        self._files = files
        self._failed_sync: DiskError | None = None  # that nobody has been told of
        self._pins = 0  # syncs under way
        self._fd = _open(path, create=create)
        self.size = os.fstat(self._fd).st_size
        self._synced_size = -1  # how far it was when it was last synced
        files.add(self)

    # -- descriptors

    @property
    def is_synced(self) -> bool:
        return self._synced_size == self.size and self._failed_sync is None

    def set_aside(self) -> bool:
        """Give up the descriptor; False if it is being synced (F5)."""
        with self._files.lock:
            if self._pins or not self.is_synced:
                return False
            fd, self._fd = self._fd, _ASIDE
            self._files.forget(self)
        os.close(fd)
        return True

    def sync_aside(self) -> None:
        """Sync in order to give up the descriptor; the next sync tells if this one failed."""
        try:
            self.sync()
        except DiskError as error:
            self._failed_sync = error

    def _get_back(self) -> int:
        """The descriptor, of a file that had given it up."""
        if self._fd == _CLOSED:
            raise DiskError(f"{self.path}: is closed")
        fd = _open(self.path, create=False)
        if os.fstat(fd).st_size != self.size:
            os.close(fd)
            raise DiskError(f"{self.path}: is not as it was left, {self.size} bytes long; "
                            "something else changed it")
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
        """A short write: the disk filled up, or a signal came; go on until it is clear which."""
        rest = memoryview(b"".join(buffers))
        assert len(rest) == size, (len(rest), size)
        try:
            while written < size:
                written += os.write(self._fd, rest[written:])
        except OSError as error:
            raise self._undo(error) from error

    def _undo(self, error: OSError) -> DiskError:
        """Cut off what a failed append left behind (F1)."""
        try:
            os.ftruncate(self._fd, self.size)
        except OSError:
            self.close()  # whoever writes to it next is refused
            return DiskError(f"{self.path}: cannot be cut back to {self.size} bytes after a "
                             f"failed write ({error.strerror}); check the disk",
                             kind=Kind.CORRUPT)
        return mapped(error, self.path)

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
        assert self.mapped_size <= size <= self.size, (self.mapped_size, size, self.size)  # F2
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
                return  # F4
            self._pins += 1  # F5
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
