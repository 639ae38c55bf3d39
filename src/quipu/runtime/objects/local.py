"""A store in a directory of this machine: a file for each object.

    ROOT/a~/b~/name     the object a/b/name: folders end in ~, so that a/b may be an object as well
    ROOT/.tmp/          objects that are being written; old files in it are removed at the start
    ROOT/.lock          locked while an object is created, replaced or deleted

An object is written to a temporary file, synced, and then renamed; the folder is synced before the
put returns (runtime.O3).  Several processes may share a store: conditions are checked while the
lock is held, which all of them share (runtime.O2).

A version consists of the file's inode number, size and modification time.  The store sets the time
itself: the system's time is the same for several milliseconds, in which an inode number may be
reused.
"""

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import Final, TypeVar

from quipu.runtime.objects.errors import (
    ObjectNotFound,
    ObjectStoreError,
    StoreDenied,
    StoreUnavailable,
)
from quipu.runtime.objects.keys import check_key
from quipu.runtime.objects.store import (
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectInfo,
    ObjectPage,
    check_delete,
    check_list,
    check_match,
    check_part,
    check_put,
    check_ranges,
    check_ranges_of,
    check_whole,
)

THREADS: Final = 4
ABANDONED_SECONDS: Final = 86_400.0  # age at which a file in .tmp is removed
_FOLDER: Final = "~"  # no key has it
_LOCK: Final = ".lock"
_TEMPORARY: Final = ".tmp"
_PASSING: Final = frozenset({
    errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EINTR, errno.EMFILE, errno.ENFILE,
    errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.ESTALE, errno.ETIMEDOUT})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

T = TypeVar("T")


class LocalStore:
    """An `ObjectStore` in a directory; file operations run in threads."""

    def __init__(self, root: str) -> None:
        """Open the store in `root`, which is created if it does not exist."""
        self._root = Path(root)
        self._names = count()
        self._stamp = 0  # the last time that was given to a file, in nanoseconds
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="quipu-objects")
        with _mapped(root):
            (self._root / _TEMPORARY).mkdir(parents=True, exist_ok=True)
            (self._root / _LOCK).touch()
            self._remove_abandoned()

    # -- the protocol

    async def put(
        self, key: str, data: Sequence[Buffer], *,
        if_absent: bool = False, if_match: str | None = None,
    ) -> ObjectInfo:
        check_put(key, data, if_absent=if_absent, if_match=if_match)

        def work() -> ObjectInfo:
            with self._temporary() as path:
                _write(path, data)
                return self._publish(path, key, if_absent=if_absent, if_match=if_match)

        return await self._do(key, work)

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        check_key(key)
        path = self._temporary_path()
        try:
            await self._do(key, lambda: _write(path, ()))
            async for part in parts:
                check_part(key, part)
                await self._do(key, lambda part=part: _append(path, part))  # type: ignore[misc]
            return await self._do(key, lambda: self._publish(path, key))
        finally:
            with suppress(FileNotFoundError):
                path.unlink()

    async def get(self, key: str) -> bytes:
        check_key(key)

        def work() -> bytes:
            with self._open(key) as descriptor:
                info = _info(key, os.fstat(descriptor))
                check_whole(info)
                return _read(descriptor, ByteRange(0, info.size))

        return await self._do(key, work)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        check_ranges(key, ranges)

        def work() -> list[bytes]:
            with self._open(key) as descriptor:
                check_ranges_of(_info(key, os.fstat(descriptor)), ranges)
                return [_read(descriptor, each) for each in ranges]

        return await self._do(key, work)

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._do(key, lambda: _info(key, os.stat(self._path(key))))

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        check_list(prefix, after, limit)

        def work() -> ObjectPage:
            folder = prefix.rpartition("/")[0]
            names = self._walk(f"{folder}/" if folder else "", prefix, after or "")
            found = tuple(islice(names, limit + 1))
            more = len(found) > limit
            return ObjectPage(found[:limit], found[limit - 1].key if more else None)

        return await self._do(prefix, work)

    async def delete(self, keys: Sequence[str]) -> None:
        check_delete(keys)

        def work() -> None:
            folders = set()
            for key in keys:
                path = self._path(key)
                with self._locked(), suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
                    folders.add(path.parent)
            for folder in folders:
                _sync(folder)

        await self._do(", ".join(keys[:3]), work)

    async def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    # -- in a thread

    async def _do(self, what: str, work: Callable[[], T]) -> T:
        """Run `work` in a thread; its OSErrors become those of a store (objects/errors.py)."""

        def mapped() -> T:
            with _mapped(what):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._pool, mapped)

    def _path(self, key: str) -> Path:
        """The path of an object; `key` has been checked (runtime.O4)."""
        *folders, name = key.split("/")
        return self._root.joinpath(*(folder + _FOLDER for folder in folders), name)

    def _temporary_path(self) -> Path:
        return self._root / _TEMPORARY / f"{os.getpid()}-{time.time_ns()}-{next(self._names)}"

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        path = self._temporary_path()
        try:
            yield path
        finally:
            with suppress(FileNotFoundError):  # it was renamed
                path.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)  # releases the lock

    @contextmanager
    def _open(self, key: str) -> Iterator[int]:
        descriptor = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _publish(
        self, path: Path, key: str, *, if_absent: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """Sync a file, and rename it to the path of its object."""
        target = self._path(key)
        _make_folders(target.parent)
        self._stamp = stamp = max(self._stamp + 1, time.time_ns())
        os.utime(path, ns=(stamp, stamp))
        _sync(path)
        info = _info(key, os.stat(path))
        with self._locked():
            if if_absent or if_match is not None:
                check_match(key, _version_at(target), if_absent=if_absent, if_match=if_match)
            path.replace(target)
        _sync(target.parent)
        return info

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield the objects of a folder and its subfolders, in the order of keys (runtime.O6)."""
        directory = self._root.joinpath(*(each + _FOLDER for each in folder.split("/") if each))
        names = []
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(_FOLDER):
                    names.append(entry.name.removesuffix(_FOLDER) + "/")
                elif not entry.name.startswith("."):
                    names.append(entry.name)
        for name in sorted(names):
            key = folder + name
            if name.endswith("/"):
                below = key.startswith(prefix) or prefix.startswith(key)
                if below and (key > after or after.startswith(key)):
                    yield from self._walk(key, prefix, after)
            elif key.startswith(prefix) and key > after:
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    yield _info(key, os.stat(self._path(key)))

    def _remove_abandoned(self) -> None:
        """Remove files that a process was writing when it ended."""
        end = time.time() - ABANDONED_SECONDS
        with os.scandir(self._root / _TEMPORARY) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime < end:
                        os.unlink(entry.path)


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    """Turn OSErrors into errors of a store."""
    try:
        yield
    except OSError as error:
        raise _error(what, error) from error


def _error(what: str, error: OSError) -> ObjectStoreError:
    reason = f"{what}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return ObjectNotFound(f"{what}: no such object")
    if error.errno in _DENIED:
        return StoreDenied(reason)
    if error.errno in _PASSING:
        return StoreUnavailable(reason)
    return ObjectStoreError(reason)


def _info(key: str, stat: os.stat_result) -> ObjectInfo:
    version = f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"
    return ObjectInfo(key, stat.st_size, version, stat.st_mtime_ns // 1_000_000)


def _version_at(path: Path) -> str | None:
    try:
        return _info("", os.stat(path)).version
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(path: Path, data: Sequence[Buffer]) -> None:
    """Create a file that holds `data`."""
    with path.open("xb") as file:
        for buffer in data:
            file.write(buffer)


def _append(path: Path, part: Buffer) -> None:
    with path.open("r+b") as file:  # never creates it: a cancelled put has removed it
        file.seek(0, os.SEEK_END)
        file.write(part)


def _sync(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(folder: Path) -> None:
    """Create the folder and its parents, each durable before its content."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        _sync(each.parent)


def _read(descriptor: int, wanted: ByteRange) -> bytes:
    """The bytes of a range, up to the end of the file."""
    found = []
    position = wanted.start
    while position < wanted.end:
        data = os.pread(descriptor, wanted.end - position, position)
        if not data:
            break
        found.append(data)
        position += len(data)
    return b"".join(found)
