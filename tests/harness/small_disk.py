"""A disk of a few MiB for a node, that can be filled up and freed.

    with small_disk(tmp_path / "disk") as disk:
        node = disk.give(RunningNode(disk.path / "data"))
        with node:
            disk.fill()

For root it is a file system of its own.  For others the node runs this file, a `quipu` whose writes
are refused while another file says so; it frees as much as the node removes of its reserve.
"""

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quipu.runtime.disks.disk import RealDisk
from tests.harness.node import REPOSITORY, RunningNode

SIZE = 24 << 20
VARIABLE = "SMALL_DISK_FULL_WHILE"


class SmallDisk:
    """A disk that can be filled up; `path` is where its files are."""

    def __init__(self, path: Path, *, is_mounted: bool) -> None:
        self.path = path
        self._is_mounted = is_mounted
        self._filler = path / "filler" if is_mounted else path.with_name(path.name + ".full")

    def give(self, node: RunningNode) -> RunningNode:
        """Let `node` live on it, and log elsewhere."""
        node.directory = self.path / "data"
        node.log_path = self.path.with_name(self.path.name + ".log")
        if not self._is_mounted:
            node.program = ["-m", "tests.harness.small_disk"]
            node.environment = {**node.environment, VARIABLE: str(self._filler),
                                "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"}
        return node

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while self._is_mounted:
                file.write(bytes(4096))

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """A disk whose files are at `path`."""
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    is_mounted = os.geteuid() == 0 and (
        subprocess.run(words, check=False, capture_output=True).returncode == 0)
    try:
        yield SmallDisk(path, is_mounted=is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)


# --- the twin -----------------------------------------------------------------------------------


class _Room:
    left = 0  # bytes that a removed reserve has freed


def _take(size: int) -> None:
    if Path(os.environ[VARIABLE]).exists():
        if size > _Room.left:
            raise OSError(errno.ENOSPC, "no room")
        _Room.left -= size


def _make_small() -> None:
    writev, sendfile, remove = os.writev, os.sendfile, RealDisk.remove

    def small_writev(fd: int, buffers: Sequence[Any]) -> int:
        _take(sum(map(len, buffers)))
        return writev(fd, buffers)

    def small_sendfile(target: int, source: int, offset: int, count: int) -> int:
        _take(count)
        return sendfile(target, source, offset, count)

    def removed(disk: RealDisk, path: str) -> None:
        size = disk.size(path)
        remove(disk, path)
        _Room.left += size

    os.writev = small_writev
    os.sendfile = small_sendfile
    RealDisk.remove = removed  # type: ignore[method-assign]


if __name__ == "__main__":
    from quipu.cli.main import main

    _make_small()
    sys.exit(main())
