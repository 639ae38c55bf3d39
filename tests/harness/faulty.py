"""`quipu`, with a disk that fails for some logs while a file says so.

    FAULTY_LOGS=t-0.,__node-0 FAULTY_WHILE=/some/file python tests/harness/faulty.py start ...

Writes to files of directories whose name begins so, and syncs of them, come back with an error of
the device.
"""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from quipu.cli.main import main
from quipu.runtime.disks.disk import DiskError, RealFile
from quipu.runtime.net.connection import Buffer

_append, _sync = RealFile.append, RealFile.sync


def _check(file: RealFile) -> None:
    is_meant = Path(file.path).parent.name.startswith(tuple(os.environ["FAULTY_LOGS"].split(",")))
    if is_meant and Path(os.environ["FAULTY_WHILE"]).exists():
        raise DiskError(f"{file.path}: {os.strerror(errno.EIO)}")


def append(file: RealFile, buffers: Sequence[Buffer], size: int) -> None:
    _check(file)
    _append(file, buffers, size)


def sync(file: RealFile) -> None:
    _check(file)
    _sync(file)


RealFile.append, RealFile.sync = append, sync  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main())
