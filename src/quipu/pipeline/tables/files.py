r"""Files of a table: sections of Arrow IPC, each with a checksum, written once and never changed.

    "QTABLE1\n"             8 bytes
    section …              an Arrow IPC stream each, beginning at a multiple of 64
    footer                 JSON: {"sections": {name: [position, size, crc32c]}, "rows": n}
    size, crc32c           of the footer, 4 bytes each, little-endian
    "QTABLE1\n"

A column of rows is a section of its own: columns that are not needed are neither read nor checked.
A section is checked when it is first read, and a file stays open, mapped into memory, for a while;
so merging small batches into a large table does not read the large table each time.

A file is complete or does not exist: it is written under a temporary name, flushed to disk and then
renamed.  The name has the version and a digest of the content, so that two attempts at one merge
never write different bytes under one name.  The commit flushes the directory.
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
    """The name of a file; it begins with the version, by which cleaning finds unfinished files."""
    return f"{version:020d}-{bucket:05d}-{digest}.{suffix}"


def version_of(name: str) -> int | None:
    """The version in the name of a file or a manifest; None if the name has none."""
    head, mark = name[:20], name[20:21]
    return int(head) if head.isdecimal() and mark and mark in "-." else None


class SectionWriter:
    """Collects sections in memory, then writes the file at once."""

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
        """Write the file, flushed, under its final name; returns the name."""
        footer = json.dumps({"sections": self._sections, "rows": self._rows}).encode()
        tail = _TAIL.pack(len(footer), crc32c(footer)) + MAGIC
        digest = hashlib.blake2b(footer, digest_size=8).hexdigest()
        name = file_name(version, bucket, digest, suffix)
        temporary = temporary_for(directory / name)
        # pipeline.T1: the name holds a hash of the bytes
        write_flushed(temporary, [*self._parts, footer, tail])
        temporary.rename(directory / name)
        return name


class TableFile:
    """An open file; made by `open_file`."""

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
        """One section, checked when it is first read; its memory is that of the mapped file."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = self._read(name)
        return found

    def _footer(self) -> dict[str, Any]:
        data = self._data
        end = data.size - _TAIL_SIZE
        if end < len(MAGIC) or data.slice(end + _TAIL.size).to_pybytes() != MAGIC:
            raise CorruptFile(f"{self.path}: truncated, or no file of a table")
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
    """An open file, from the cache of this process if it is there: files never change.

    All files are closed when the cache is full, because deleted files use disk space as long as
    they are open.
    """
    if _opened.cache_info().currsize == _OPEN_FILES_MAX:
        close_files()
    return _opened(path)


def close_files() -> None:
    """Close all cached files; they are opened and checked again when they are needed."""
    _opened.cache_clear()
