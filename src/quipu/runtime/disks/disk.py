"""`Disk`: the protocol through which a node uses its file system, and `RealDisk`, the machine's.

    Disk       the operations on files and directories
    RealDisk   the machine's file system
    File       one open file that only grows (files.py has the machine's)

`sim_disk.SimDisk` replaces it in tests: it can lose what was not synced, tear the last write, flip
bits, and run full.

Invariants
    runtime.F3  work given to `submit` runs outside of the event loop; its result arrives on it

Invariants of open files are in files.py.  Every `OSError` becomes a `DiskError` (errors.py) here.
"""

import asyncio
import fcntl
import os
import resource
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from quipu.model.errors import ErrorKind, QuipuError
from quipu.runtime.disks.errors import (
    DiskBusy,
    DiskError,
    DiskFull,
    NotFound,
    TransientDiskError,
    mapped,
    mapped_sync,
)
from quipu.runtime.disks.files import Buffer, OpenFiles, RealFile
from quipu.runtime.disks.mapping import map_file

__all__ = [
    "Buffer", "Disk", "DiskBusy", "DiskError", "DiskFull", "Done", "File", "Lock", "NotFound",
    "RealDisk", "RealFile", "Space", "TransientDiskError", "Wait", "Work", "raise_file_limit",
]

Work = Callable[[], None]
Done = Callable[[QuipuError | None], None]
Wait = Callable[[], object]

SYNC_THREADS: Final = 4  # syncs that may run at once; the kernel queues more anyway


class Space(NamedTuple):
    """Total and free bytes of a volume."""

    total: int
    usable: int


class File(Protocol):
    """One open file that only grows."""

    size: int  # bytes of all completed appends
    mapped_size: int  # the largest size at which this file was mapped

    def append(self, buffers: Sequence[Buffer], size: int) -> None:
        """Write `buffers`, together `size` bytes, at the end: all or nothing (runtime.F1)."""
        ...

    def patch(self, data: Buffer, position: int) -> None:
        """Replace bytes of a file that nobody else has seen: it was not mapped."""
        ...

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def map(self) -> memoryview:
        """The current bytes of the file, without copying; valid for as long as it is held."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file; never below a size that was mapped (runtime.F2)."""
        ...

    def sync(self) -> None:
        """Return when all bytes so far would survive a power loss.  Blocks."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """Held until released, or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system of a node.  Paths are absolute or relative strings."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def map(self, path: str) -> memoryview: ...
    def read(self, path: str, size: int = -1, position: int = 0) -> bytes: ...
    def write(self, path: str, data: Buffer) -> None:
        """Replace the file at `path`; not durable, and not atomic."""
        ...

    def copy(self, source: str, target: str, *, start: int, end: int) -> None:
        """Copy a range of bytes to a new file, durably."""
        ...

    def size(self, path: str) -> int: ...
    def space(self, path: str) -> Space:
        """Total and free bytes of the volume that holds `path`."""
        ...

    def exists(self, path: str) -> bool: ...
    def list(self, path: str) -> Sequence[str]: ...
    def make_directory(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None:
        """Return when the names in `path` would survive a power loss.  Blocks."""
        ...

    def lock(self, path: str) -> Lock | None:
        """Take the lock at `path`; None if another process holds it."""
        ...

    def submit(self, work: Work, done: Done) -> Wait:
        """Run `work` in a thread, then `done` on the loop (runtime.F3); without a loop, both now.

        Returns a function that blocks until `work`, though not `done`, has run.
        """
        ...

    def close(self) -> None: ...


class RealLock:
    """An advisory lock on a file; the system releases it when the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The machine's file system."""

    def __init__(self) -> None:
        self.files = OpenFiles()
        self._pool: ThreadPoolExecutor | None = None  # started by the first sync

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(path, self.files, create=create)

    def map(self, path: str) -> memoryview:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return map_file(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
        except OSError as error:
            raise mapped(error, path) from error

    def read(self, path: str, size: int = -1, position: int = 0) -> bytes:
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(position)
                return file.read(size) or b""
        except OSError as error:
            raise mapped(error, path) from error

    def write(self, path: str, data: Buffer) -> None:
        try:
            with open(path, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) or 0 :]
        except OSError as error:
            raise mapped(error, path) from error

    def copy(self, source: str, target: str, *, start: int, end: int) -> None:
        try:
            with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as write:
                while start < end:
                    copied = os.sendfile(write.fileno(), read.fileno(), start, end - start)
                    assert copied > 0, (source, start, end)
                    start += copied
                os.fsync(write.fileno())
        except OSError as error:
            raise mapped(error, target) from error

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def space(self, path: str) -> Space:
        try:
            volume = os.statvfs(path)
        except OSError as error:
            raise mapped(error, path) from error
        return Space(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def _stat(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise mapped(error, path) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise mapped(error, path) from error

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, 0o700, exist_ok=True)  # only the node's user may read records
        except OSError as error:
            raise mapped(error, path) from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
        except OSError as error:
            raise mapped(error, source) from error

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError as error:
            raise mapped(error, path) from error

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise mapped(error, path) from error

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise mapped(error, path) from error
        try:
            os.fsync(fd)
        except OSError as error:
            raise mapped_sync(error, path) from error
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock | None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise mapped(error, path) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return RealLock(fd)

    def submit(self, work: Work, done: Done) -> Wait:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            done(_outcome(work))
            return lambda: None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="quipu-disk")
        return self._pool.submit(lambda: _report(loop, done, _outcome(work))).result

    def close(self) -> None:
        """Wait for work that is running."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def _outcome(work: Work) -> QuipuError | None:
    try:
        work()
    except QuipuError as error:
        return error
    except Exception as error:  # noqa: BLE001 a bug in a thread must reach the loop, not vanish
        return QuipuError(f"bug in disk work: {error!r}", kind=ErrorKind.BUG)
    return None


def _report(loop: asyncio.AbstractEventLoop, done: Done, outcome: QuipuError | None) -> None:
    if not loop.is_closed():  # on a closed loop nothing waits for the result
        loop.call_soon_threadsafe(done, outcome)


def raise_file_limit() -> int:
    """Let this process open as many files as the system allows; return that number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
