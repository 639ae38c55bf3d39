"""Files that are whole or not there, whenever the machine stops.

    write_flushed(path, parts)     a new file; whoever gives it its final name flushes the directory
    publish(path, text)            a text under a name that nobody has taken, with a checksum
    published(path)                that text
    replace_file(path, data)       other content under the same name
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crc32c import crc32c

from quipu.pipeline.tables.contract import CorruptFile

if TYPE_CHECKING:
    import pyarrow as pa

TEMPORARY = ".tmp"


def temporary_for(path: Path) -> Path:
    """Where to write what will have that name: two processes, on any machines, do not meet."""
    return path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}{TEMPORARY}")


def write_flushed(path: Path, parts: "Sequence[bytes | pa.Buffer]", mode: int = 0o600) -> None:
    """Write a new file and flush it to disk; what was written in part is taken away again."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            for part in parts:
                _write_all(descriptor, memoryview(part))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data):]


def flush_directory(directory: Path) -> None:
    """Make sure that the names in a directory are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(path: Path, text: str) -> None:
    """Give a line of text its final name, unless the name is taken (FileExistsError)."""
    temporary = temporary_for(path)
    line = text.encode()
    write_flushed(temporary, [line, _checksum(line)])
    try:
        os.link(temporary, path)  # a rename would replace what is there
    finally:
        temporary.unlink()
    flush_directory(path.parent)


def published(path: Path) -> str:
    """What was published."""
    line, end, checksum = path.read_bytes().partition(b"\n")
    if end + checksum != _checksum(line):
        raise CorruptFile(f"{path}: the checksum is wrong")
    return line.decode()


def _checksum(line: bytes) -> bytes:
    return f"\n{crc32c(line):08x}\n".encode()


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Give a file other content, or leave it as it is."""
    temporary = temporary_for(path)
    temporary.unlink(missing_ok=True)  # of a process that had our number: it may be readable to all
    write_flushed(temporary, [data], mode)
    temporary.rename(path)
    flush_directory(path.parent)
