"""Append-only tables: rows of sources without keys, and dead letters, in files.

The task that reads messages writes their rows, so rows never travel through Spark; what travels is
a `RowFile`, the name of a file.  A version of such a table is a list of files (`versions.py`), and
the rows that a version added are in files of its own.  Small files are compacted now and then, so
that neither the list nor the number of files grows with the number of batches.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from quipu.pipeline.tables.files import SectionWriter, open_file, version_of

FILE_SIZE_MAX = 64 << 20  # of rows in memory, when they are written
COMPACT_COUNT = 16  # files of about one size that are compacted
ORPHAN_NS = 3_600_000_000_000  # an hour: no batch takes that long


class RowFile(NamedTuple):
    """A file with rows of an append-only table."""

    file: str
    rows: int
    size: int


class AppendWriter:
    """Gathers rows, and writes a file whenever there are `FILE_SIZE_MAX` bytes of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[RowFile]:
        """Take rows; yields the files that were written because of them."""
        assert self._size < FILE_SIZE_MAX, self._size
        if rows.num_rows:
            self._batches.append(rows)
            self._size += rows.nbytes
        if self._size >= FILE_SIZE_MAX:
            yield from self.finish()
            assert not self._batches, self._directory

    def finish(self) -> Iterator[RowFile]:
        """Write the rows that are left."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            assert table.num_rows > 0, self._directory
            self._batches, self._size = [], 0
            made = write_rows(self._directory, table)
            assert made.rows == table.num_rows, made
            yield made


def write_rows(directory: Path, table: pa.Table) -> RowFile:
    """Write rows into a new file under a name that no file had before."""
    writer = SectionWriter(table.num_rows)
    whole = table.combine_chunks()
    assert whole.num_rows == table.num_rows, directory
    for index, field in enumerate(whole.schema):
        writer.add(f"c{index}", pa.table([whole.column(index)], pa.schema([field])))
    directory.mkdir(parents=True, exist_ok=True)
    name = writer.write(directory, time.time_ns(), 0, "rows")
    made = RowFile(name, table.num_rows, (directory / name).stat().st_size)
    assert made.size > 0, made
    assert version_of(name) is not None, name  # else it would never be cleaned away
    return made


def read_rows(
    directory: Path, schema: pa.Schema, files: Iterable[RowFile], columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of some files, with some of their columns; without columns, rows that are empty."""
    indexes = [schema.get_field_index(name) for name in columns]
    wanted = pa.schema([schema.field(index) for index in indexes])
    for file in files:
        if not indexes:
            yield pa.RecordBatch.from_struct_array(pa.nulls(file.rows, pa.struct([])))
            continue
        opened = open_file(directory / file.file)
        yield from pa.table([opened.section(f"c{index}").column(0) for index in indexes],
                            schema=wanted).to_batches()


def tier(file: RowFile) -> int:
    """The size class of a file: sizes in one class differ at most `COMPACT_COUNT`-fold."""
    size, found = file.size, 0
    assert size >= 0, file
    while size >= COMPACT_COUNT * 1024:
        size //= COMPACT_COUNT
        found += 1
    return found


def files_to_compact(files: Sequence[RowFile]) -> list[RowFile]:
    """The files of the smallest size class that has `COMPACT_COUNT` files; none if none has."""
    by_tier: dict[int, list[RowFile]] = {}
    for file in files:
        if file.size < FILE_SIZE_MAX:
            by_tier.setdefault(tier(file), []).append(file)
    for _, those in sorted(by_tier.items()):
        if len(those) >= COMPACT_COUNT:
            assert all(file.size < FILE_SIZE_MAX for file in those), those
            return those
    return []


def compact(directory: Path, schema: pa.Schema, files: Sequence[RowFile]) -> list[RowFile]:
    """Write the rows of some files again, into as few files as possible."""
    assert files, directory
    writer = AppendWriter(directory)
    made: list[RowFile] = []
    for rows in read_rows(directory, schema, files, schema.names):
        made += writer.add(rows)
    made += writer.finish()
    assert sum(file.rows for file in made) == sum(file.rows for file in files), (files, made)
    return made


def remove_unused(directory: Path, needed: set[str], now_ns: int) -> int:
    """Delete files that no version needs and that are too old to be those of a running batch."""
    removed = 0
    for path in directory.glob("*.rows"):
        made_ns = version_of(path.name)
        if path.name not in needed and made_ns is not None and made_ns < now_ns - ORPHAN_NS:
            path.unlink(missing_ok=True)
            removed += 1
    return removed
