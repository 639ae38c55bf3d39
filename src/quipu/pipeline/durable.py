"""Writes files so that after a crash they are complete or do not exist.

    write_flushed(path, parts)     writes a new file; the caller flushes the directory
    publish(path, text)            writes a text with a checksum to a file that must not exist
    published(path)                reads that text
    replace_file(path, data)       replaces the content of a file
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
    """The temporary name of a file; it differs between processes and machines."""
    return path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}{TEMPORARY}")


def write_flushed(path: Path, parts: "Sequence[bytes | pa.Buffer]", mode: int = 0o600) -> None:
    """Write a new file and flush it to disk; after an error the file is removed."""
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
    """Flush the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(path: Path, text: str) -> None:
    """Write a line of text to a new file; raises FileExistsError if the file exists."""
    temporary = temporary_for(path)
    line = text.encode()
    write_flushed(temporary, [line, _checksum(line)])
    try:
        os.link(temporary, path)  # a rename would replace an existing file
    finally:
        temporary.unlink()
    flush_directory(path.parent)


def published(path: Path) -> str:
    """The text of a published file; raises CorruptFile if its checksum is wrong."""
    line, end, checksum = path.read_bytes().partition(b"\n")
    if end + checksum != _checksum(line):
        raise CorruptFile(f"{path}: the checksum is wrong")
    return line.decode()


def _checksum(line: bytes) -> bytes:
    return f"\n{crc32c(line):08x}\n".encode()


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace the content of a file; after an error or crash the old content is unchanged."""
    temporary = temporary_for(path)
    temporary.unlink(missing_ok=True)  # left by a crashed process, perhaps with another mode
    write_flushed(temporary, [data], mode)
    temporary.rename(path)
    flush_directory(path.parent)
