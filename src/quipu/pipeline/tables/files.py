r"""Files of a table: sections of Arrow IPC, each with a checksum, written once and never changed.

    "QTABLE1\n"             8 bytes
    section …              an Arrow IPC stream each, beginning at a multiple of 64
    footer                 JSON: {"sections": {name: [position, size, crc32c]}, "rows": n}
    size, crc32c           of the footer, 4 bytes each, little-endian
    "QTABLE1\n"

A column of rows is a section of its own: what is not asked for is not read, nor checked.  A
section is checked when it is first asked for, and a file stays open, mapped into memory, for a
while; so merging small batches into a large table does not read the large table again and again.

A file is complete or not there: it is written under a temporary name, flushed to disk and then
renamed.  The name has the version and a digest of the content, so that two attempts at one merge
never write different bytes under one name.  Directories are flushed by whoever commits.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from pyarrow import ipc

from quipu.pipeline.durable import temporary_for, write_flushed
from quipu.pipeline.tables.contract import CorruptFile, MissingFile

MAGIC = b"QTABLE1\n"
_TAIL = struct.Struct("<II")
_TAIL_SIZE = _TAIL.size + len(MAGIC)
_ALIGNMENT = 64
_FOOTER_SIZE_MAX = 1 << 24
_OPEN_FILES_MAX = 256


def file_name(version: int, bucket: int, digest: str, suffix: str) -> str:
    """The version leads, so that cleaning can tell what may still be in the making."""
    return f"{version:020d}-{bucket:05d}-{digest}.{suffix}"


def version_of(name: str) -> int | None:
    """The version in the name of a file or a manifest; None if it is none of ours."""
    head, mark = name[:20], name[20:21]
    return int(head) if head.isdecimal() and mark and mark in "-." else None


class SectionWriter:
    """Gathers sections in memory, then writes the file in one go."""

    def __init__(self, rows: int = 0) -> None:
        self._parts: list[bytes | pa.Buffer] = [MAGIC]
        self._position = len(MAGIC)
        self._sections: dict[str, tuple[int, int, int]] = {}
        self._rows = rows

    def add(self, name: str, table: pa.Table) -> None:
        """Add one section."""
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        padding = -self._position % _ALIGNMENT
        self._parts += [bytes(padding), data]
        self._position += padding
        self._sections[name] = self._position, data.size, crc32c(data)
        self._position += data.size

    def write(self, directory: Path, version: int, bucket: int, suffix: str) -> str:
        """Write the file, flushed, under its final name; the name."""
        footer = json.dumps({"sections": self._sections, "rows": self._rows}).encode()
        tail = _TAIL.pack(len(footer), crc32c(footer)) + MAGIC
        digest = hashlib.blake2b(footer, digest_size=8).hexdigest()
        name = file_name(version, bucket, digest, suffix)
        temporary = temporary_for(directory / name)
        write_flushed(temporary, [*self._parts, footer, tail])
        temporary.rename(directory / name)
        return name


class TableFile:
    """An open file.  Use `open_file`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pa.memory_map(str(path)) as mapped:
                self._data = mapped.read_buffer()
        except FileNotFoundError as error:
            raise MissingFile(f"{path}: the file is gone, although a version needs it") from error
        except OSError as error:
            raise CorruptFile(f"{path}: cannot be read: {error}") from error
        footer = self._footer()
        self.rows: int = footer["rows"]
        self._sections: Mapping[str, tuple[int, int, int]] = footer["sections"]
        self._tables: dict[str, pa.Table] = {}

    def size(self, name: str) -> int:
        """The size of a section."""
        return self._sections[name][1]

    def section(self, name: str) -> pa.Table:
        """One section, checked when first asked for; its memory is the file's."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = self._read(name)
        return found

    def _footer(self) -> dict[str, Any]:
        data = self._data
        end = data.size - _TAIL_SIZE
        if end < len(MAGIC) or data.slice(end + _TAIL.size).to_pybytes() != MAGIC:
            raise CorruptFile(f"{self.path}: cut off, or no file of a table")
        size, checksum = _TAIL.unpack(data.slice(end, _TAIL.size))
        if size > min(end - len(MAGIC), _FOOTER_SIZE_MAX):
            raise CorruptFile(f"{self.path}: a footer of {size} bytes does not fit")
        footer = data.slice(end - size, size)
        if crc32c(footer) != checksum:
            raise CorruptFile(f"{self.path}: the footer's checksum is wrong")
        found: dict[str, Any] = json.loads(footer.to_pybytes())
        return found

    def _read(self, name: str) -> pa.Table:
        if name not in self._sections:
            raise CorruptFile(f"{self.path}: there is no section {name!r}")
        position, size, checksum = self._sections[name]
        if not 0 <= position <= position + size <= self._data.size:
            raise CorruptFile(f"{self.path}: section {name!r} is outside of the file")
        part = self._data.slice(position, size)
        if crc32c(part) != checksum:
            raise CorruptFile(f"{self.path}: the checksum of section {name!r} is wrong")
        return ipc.open_stream(part).read_all()


@lru_cache(maxsize=_OPEN_FILES_MAX)
def _opened(path: Path) -> TableFile:
    return TableFile(path)


def open_file(path: Path) -> TableFile:
    """The file, open already if the process has used it lately: files never change.

    Now and then all are closed, for the sake of those that were deleted: they take up the disk
    as long as they are open.
    """
    if _opened.cache_info().currsize == _OPEN_FILES_MAX:
        close_files()
    return _opened(path)


def close_files() -> None:
    """Close all files that nobody reads; they are opened, and checked, when they are needed."""
    _opened.cache_clear()
