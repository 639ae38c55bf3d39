"""A simulated disk: in memory, with the faults that a real one has.

A crash keeps no more than an operating system guarantees; the given random source chooses what:

    data    of each file all that was synced, and any part of what was appended since: cut short,
            or with blocks of zeros where the file grew before its data was written
    names   of each directory as of its last sync, and any first part of the changes made since;
            a file is lost if the name of its directory is; names without a directory are durable
            at once

It also simulates a full disk, syncs that fail, flipped bits, and work that runs later.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from quipu.model.errors import QuipuError
from quipu.runtime.disks.disk import Buffer, DiskError, DiskFull, Done, NotFound, Space, Wait, Work
from quipu.runtime.rng import Rng

SPACE: Final = 1 << 40  # bytes, where no capacity is set
BROKEN: Final = "the device does not respond"
BLOCK_SIZE: Final = 512  # a torn write loses whole blocks

Names = dict[str, "_Inode | None"]  # None: a directory
Change = Callable[[Names], object]
Changes = list[tuple[str, Change]]  # each with the directory whose names it changes
Worker = Callable[[Work, Done], Wait]


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""

    def crash(self, rng: Rng) -> None:
        """Keep what was synced and some of the rest."""
        if not self.data.startswith(self.durable):  # it was cut, and the cut was not synced
            self.data = self.data if rng.random() < 0.5 else bytearray(self.durable)
        else:
            safe = len(self.durable)
            kept = safe + int(rng.random() * (len(self.data) - safe + 1))
            del self.data[kept:]
            if rng.random() < 0.3:
                start = safe + int(rng.random() * (kept - safe + 1))
                end = min(start + BLOCK_SIZE, kept)
                self.data[start:end] = bytes(end - start)
        self.durable = bytes(self.data)


class SimFile:
    """An open file of a `SimDisk`."""

    def __init__(self, disk: "SimDisk", path: str, inode: _Inode) -> None:
        self.path = path
        self.size = len(inode.data)
        self.mapped_size = 0
        self._disk = disk
        self._inode = inode
        self._is_open = True

    def append(self, buffers: Sequence[Buffer], size: int) -> None:
        assert self._is_open, self.path
        data = b"".join(buffers)
        assert len(data) == size, (len(data), size)
        self._disk.take_space(size, self.path)
        self._inode.data += data
        self.size += size

    def patch(self, data: Buffer, position: int) -> None:
        assert self.mapped_size == 0, self.path
        assert position + len(data) <= self.size, (self.path, position)
        self._inode.data[position : position + len(data)] = data

    def read(self, size: int, position: int) -> bytes:
        assert self._is_open, self.path
        data = bytes(self._inode.data[position : position + size])
        self._disk.bytes_read[self.path] += len(data)
        return data

    def map(self) -> memoryview:
        self.mapped_size = self.size
        return memoryview(bytes(self._inode.data))

    def truncate(self, size: int) -> None:
        assert self.mapped_size <= size <= self.size, (self.mapped_size, size, self.size)
        del self._inode.data[size:]
        self.size = size

    def sync(self) -> None:
        assert self._is_open, self.path
        self._disk.count_sync(self.path)
        self._inode.durable = bytes(self._inode.data)

    def close(self) -> None:
        self._is_open = False


class SimLock:
    """Held until released, or until a crash."""

    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class SimDisk:
    """A file system in memory."""

    def __init__(self) -> None:
        self.capacity: int | None = None  # bytes that may still be appended
        self.sync_error: DiskError | None = None  # raised by every sync ...
        self.sync_error_in = ""  # ... of files whose path begins with this
        self.broken: str | None = None  # writes and syncs fail if the path begins with this
        self.is_deferred = False  # whether submitted work waits for `run_pending`
        self.worker: Worker | None = None  # runs submitted work later, if set
        self.bytes_read: Counter[str] = Counter()  # by path; maps are not counted
        self.sync_counts: Counter[str] = Counter()
        self.locked: set[str] = set()
        self._names: Names = {}
        self._durable_names: Names = {}
        self._changes: Changes = []  # of names, since the last sync of their directory
        self._renamed: set[str] = set()  # directories, maybe, that were renamed
        self._pending: list[tuple[Work, Done]] = []

    # --- faults -----------------------------------------------------------------------------

    def crash(self, rng: Rng) -> None:
        """Lose power: what was not synced may be lost."""
        names = dict(self._durable_names)
        counts = Counter(directory for directory, _ in self._changes)
        kept = {directory: int(rng.random() * (counts[directory] + 1))
                for directory in sorted(counts)}
        for directory, change in self._changes:
            if kept[directory] > 0:
                kept[directory] -= 1
                change(names)
        _prune(names)
        for path in sorted(names):
            inode = names[path]
            if inode is not None:
                inode.crash(rng)
        self._names, self._durable_names, self._changes = names, dict(names), []
        self._renamed.clear()
        self._pending = []
        self.locked = set()

    def kill(self) -> None:
        """End the process but not the machine: written data stays, locks are released."""
        self._pending = []
        self.locked = set()

    def copy_of_all(self) -> "SimDisk":
        """Another disk with the same files, all of them durable."""
        copy = SimDisk()
        for path, inode in self._names.items():
            if inode is None:
                copy._names[path] = copy._durable_names[path] = None
            else:
                copy.set_data(path, bytes(inode.data))
        return copy

    def flip(self, path: str, position: int, mask: int = 0x01) -> None:
        """Change bits of a stored byte."""
        inode = self._inode(path)
        inode.data[position] ^= mask
        inode.durable = bytes(inode.data)

    def files(self) -> Sequence[str]:
        """Every file that is not empty."""
        return sorted(path for path, inode in self._names.items() if inode and inode.data)

    def set_data(self, path: str, data: bytes) -> None:
        """Replace the stored content of a file, or create it."""
        inode = self._names.get(path) or _Inode()
        inode.data, inode.durable = bytearray(data), data
        self._names[path] = self._durable_names[path] = inode

    def is_durable(self, path: str) -> bool:
        """Whether a crash would leave the file unchanged."""
        inode, kept = self._names.get(path), self._durable_names.get(path)
        names = [path]
        while "/" in names[-1]:
            names.append(_parent(names[-1]))
        return (inode is not None and kept is not None
                and all(name in self._durable_names for name in names)
                and len(inode.durable) == len(inode.data)
                and (kept is inode or kept.durable == inode.data))  # it replaces an equal one

    def run_pending(self) -> int:
        """Run the waiting work; return the number of pieces."""
        pending, self._pending = self._pending, []
        for work, done in pending:
            done(outcome_of(work))
        return len(pending)

    def take_space(self, size: int, path: str) -> None:
        self._check_broken(path)
        if self.capacity is not None:
            if size > self.capacity:
                raise DiskFull(f"{path}: no space left")
            self.capacity -= size

    def count_sync(self, path: str) -> None:
        self.sync_counts[path] += 1
        self._check_broken(path)
        if self.sync_error is not None and path.startswith(self.sync_error_in):
            raise self.sync_error

    def _check_broken(self, path: str) -> None:
        if self.broken is not None and path.startswith(self.broken):
            raise DiskError(f"{path}: {BROKEN}")

    # --- files ------------------------------------------------------------------------------

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise NotFound(f"{path}: no such file")
        return inode

    def _change(self, path: str, change: Change) -> None:
        change(self._names)
        if "/" in path:
            self._changes.append((_parent(path), change))
        else:
            change(self._durable_names)  # the data directory, which the operator created

    def _create(self, path: str) -> _Inode:
        if path not in self._names:
            if path.rpartition("/")[0] not in self._names:
                raise NotFound(f"{path}: no such directory")
            inode = _Inode()
            self._change(path, _linking(path, inode))
        return self._inode(path)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        return SimFile(self, path, self._create(path) if create else self._inode(path))

    def map(self, path: str) -> memoryview:
        return memoryview(bytes(self._inode(path).data))

    def read(self, path: str, size: int = -1, position: int = 0) -> bytes:
        data = self._inode(path).data
        found = bytes(data[position:] if size < 0 else data[position : position + size])
        self.bytes_read[path] += len(found)
        return found

    def write(self, path: str, data: Buffer) -> None:
        self.take_space(len(data), path)
        self._create(path).data = bytearray(data)

    def copy(self, source: str, target: str, *, start: int, end: int) -> None:
        data = bytes(self._inode(source).data[start:end])
        self.take_space(len(data), target)
        inode = self._create(target)
        inode.data, inode.durable = bytearray(data), data

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def space(self, path: str) -> Space:
        assert path in self._names, path
        used = sum(len(inode.data) for inode in self._names.values() if inode is not None)
        usable = SPACE if self.capacity is None else self.capacity
        return Space(used + usable, usable)

    # --- names ------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        return path in self._names

    def list(self, path: str) -> Sequence[str]:
        if path not in self._names:
            raise NotFound(f"{path}: no such directory")
        prefix = f"{path}/"
        return sorted(name.removeprefix(prefix) for name in self._names
                      if name.startswith(prefix) and "/" not in name.removeprefix(prefix))

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            directory = "/".join(parts[:count])
            if directory not in self._names:
                if directory in self._renamed:
                    self._settle(directory)
                self._change(directory, _linking(directory, None))

    def rename(self, source: str, target: str) -> None:
        if source not in self._names:
            raise NotFound(f"{source}: no such file")

        def change(names: Names) -> None:
            for name in [each for each in names if each == source
                         or each.startswith(f"{source}/")]:
                names[target + name.removeprefix(source)] = names.pop(name)

        self._change(target, change)
        self._renamed.add(source)

    def _settle(self, path: str) -> None:
        """Make durable that `path` was renamed: it is about to be the name of a new directory.

        Names are kept by path, so changes of both directories could not be told apart.
        """
        self._renamed.discard(path)
        changes, self._changes = self._changes, []
        for directory, change in changes:
            if f"{directory}/".startswith(f"{path}/") or directory == _parent(path):
                change(self._durable_names)
            else:
                self._changes.append((directory, change))

    def remove(self, path: str) -> None:
        self._inode(path)
        self._change(path, _unlinking(path))

    def remove_tree(self, path: str) -> None:
        for name in sorted(self._names, reverse=True):
            if name == path or name.startswith(f"{path}/"):
                self._change(name, _unlinking(name))

    def sync_directory(self, path: str) -> None:
        self.count_sync(path)
        changes, self._changes = self._changes, []
        for change in changes:
            if change[0] == path:
                change[1](self._durable_names)
            else:
                self._changes.append(change)

    def lock(self, path: str) -> SimLock | None:
        if path in self.locked:
            return None
        self.locked.add(path)
        return SimLock(self, path)

    # --- work -------------------------------------------------------------------------------

    def submit(self, work: Work, done: Done) -> Wait:
        if self.worker is not None:
            return self.worker(work, done)
        if not self.is_deferred:
            done(outcome_of(work))
            return _nothing
        self._pending.append((work, done))
        return self.run_pending

    def close(self) -> None:
        """Do nothing: no resources are held."""


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _prune(names: Names) -> None:
    """Remove names whose directory does not exist."""
    for path in sorted(names):
        if "/" in path and _parent(path) not in names:
            del names[path]


def _linking(path: str, inode: _Inode | None) -> Change:
    return lambda names: names.update({path: inode})


def _unlinking(path: str) -> Change:
    return lambda names: names.pop(path, None)


def _nothing() -> None:
    """Do nothing: the work has already run."""


def outcome_of(work: Work) -> QuipuError | None:
    try:
        work()
    except QuipuError as error:
        return error
    return None
