"""Reads and writes the sections of a table's files: runs of entries, and rows.

    run          first, second, pointer, action, extra0 …  and, in the run of a batch, what each
                 entry replaced: before (a pointer, NO_ROW or MOVED), before_count
    fingerprint  first and second of each row of data
    c0, c1, …    one stored column each
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.envelopes.events import IDENTITY, KIND, SLOT_UNIT
from quipu.pipeline.envelopes.fingerprints import fingerprints
from quipu.pipeline.tables.contract import ROW_BITS, DataRef, RunRef, TableShape
from quipu.pipeline.tables.files import SectionWriter, open_file
from quipu.pipeline.tables.merging import I64, U64, Entries

DATA_ROWS_MAX = 1 << 17  # of one data file, so that rewriting it is never much work
DATA_SIZE_MAX = 1 << 28  # about; a single row may be larger


class Rows(NamedTuple):
    """Rows with the fingerprints of their identities."""

    first: U64
    second: U64
    columns: pa.Table


class Replaced(NamedTuple):
    """What the entries of a batch's run replaced."""

    before: I64
    before_count: I64


def extra_count(shape: TableShape) -> int:
    """The number of extra columns of an entry, besides those of every table."""
    return 2 if shape.events.ordered else int(shape.counts)


def numbers(table: pa.Table, name: str | int) -> npt.NDArray[Any]:
    """A column of numbers without nulls; it is not copied if it has one chunk."""
    column = table.column(name)
    found: npt.NDArray[Any] = (
        column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy())
    return found


def event_fingerprints(shape: TableShape, events: pa.Table) -> tuple[U64, U64]:
    """The fingerprint of each event's identity.

    It is computed by chunk: the bytes of all identities may be too many for one array.
    """
    slots = numbers(events, shape.events.place(KIND)) // np.uint8(SLOT_UNIT)
    halves: tuple[list[U64], list[U64]] = [], []
    start = 0
    for chunk in events.column(shape.events.place(IDENTITY)).chunks:
        found = fingerprints(chunk, slots[start:start + len(chunk)], shape.secret)
        for half, part in zip(halves, found, strict=True):
            half.append(part)
        start += len(chunk)
    first, second = (np.concatenate([*half, np.zeros(0, np.uint64)]) if len(half) != 1
                     else half[0] for half in halves)
    return first, second


def read_run(home: Path, shape: TableShape, file: str) -> Entries:
    """The run in a file."""
    table = open_file(home / file).section("run")
    extra = (f"extra{index}" for index in range(extra_count(shape)))
    names = ("first", "second", "pointer", "action", *extra)
    first, second, pointer, action, *rest = (numbers(table, name) for name in names)
    return Entries(first, second, pointer, action, tuple(rest))


def read_replaced(home: Path, file: str) -> Replaced:
    """What the run of a batch replaced."""
    table = open_file(home / file).section("run")
    return Replaced(numbers(table, "before"), numbers(table, "before_count"))


def read_fingerprints(home: Path, file: str) -> tuple[U64, U64]:
    table = open_file(home / file).section("fingerprint")
    return numbers(table, "first"), numbers(table, "second")


def columns_size(home: Path, file: str, places: Sequence[int]) -> int:
    """The number of bytes of stored columns of a data file."""
    opened = open_file(home / file)
    return sum(opened.size(f"c{place}") for place in places)


def read_columns(home: Path, shape: TableShape, file: str, places: Sequence[int]) -> pa.Table:
    """Stored columns of a data file, by their indexes; others are not read."""
    opened = open_file(home / file)
    stored = shape.stored
    return pa.table([opened.section(f"c{place}").column(0) for place in places],
                    schema=pa.schema([stored.field(place) for place in places]))


def write_run(home: Path, version: int, bucket: int, entries: Entries) -> RunRef:
    """Write a run to a file of its own."""
    writer = SectionWriter()
    writer.add("run", _run_table(entries))
    return RunRef(writer.write(home, version, bucket, "run"), len(entries))


class MergedBatch(NamedTuple):
    """The rows and entries that a merge adds to a bucket."""

    rows: Rows
    entries: Entries
    replaced: Replaced


def write_batch(
    home: Path, version: int, bucket: int, next_number: int, batch: MergedBatch,
) -> list[DataRef]:
    """Write a batch, its rows in files of limited size; the first file also has the run."""
    found: list[DataRef] = []
    columns = batch.rows.columns
    step = rows_in_a_file(columns)
    for start in range(0, max(columns.num_rows, 1), step):
        part = columns.slice(start, step).combine_chunks()
        writer = SectionWriter(part.num_rows)
        writer.add("fingerprint", pa.table({
            "first": batch.rows.first[start:start + step],
            "second": batch.rows.second[start:start + step]}))
        for index, field in enumerate(part.schema):
            writer.add(f"c{index}", pa.table([part.column(index)], pa.schema([field])))
        if not found:
            writer.add("run", _run_table(batch.entries, batch.replaced))
        name = writer.write(home, version, bucket, "data")
        found.append(DataRef(next_number + len(found), name, part.num_rows, 0))
    return found


def rows_in_a_file(columns: pa.Table) -> int:
    """The number of these rows in one file."""
    if columns.num_rows == 0:
        return 1
    by_size: int = DATA_SIZE_MAX * columns.num_rows // max(columns.nbytes, 1)
    return max(1, min(DATA_ROWS_MAX, by_size))


def _run_table(entries: Entries, replaced: Replaced | None = None) -> pa.Table:
    columns = {
        "first": entries.first, "second": entries.second, "pointer": entries.pointer,
        "action": entries.action,
        **{f"extra{index}": each for index, each in enumerate(entries.extra)},
    }
    if replaced is not None:
        columns |= {"before": replaced.before, "before_count": replaced.before_count}
    return pa.table(columns)


def pointers(next_number: int, rows: I64, step: int) -> I64:
    """Pointers to rows that `write_batch` is about to write, `step` to a file."""
    return ((next_number + rows // step) << ROW_BITS) | (rows % step)
