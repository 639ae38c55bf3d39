"""Reads a table: the rows of a version, and the changes from one version to the next.

    rows(directory, shape, state, columns=None)          a bucket's rows, batch by batch
    changes(directory, shape, states, columns=None)      changes of its rows: the columns, #diff
    rows_of(directory, shape, state, events)             the rows of some identities
    errors(directory, shape, state)                      outstanding errors, as text

`state` is `manifest(directory, version).bucket(b)`; buckets can be read in different processes.
`columns` are names of the row's columns, in the order of the result; other columns are not read
from disk.  A row that a table counts n times comes n times.

Changes are rows with #diff -1 or +1 (or other numbers, if copies are counted).  A row that was
added and removed in between is left out, and so is a row replaced by an equal one.

    for states in bucket_histories(directory, since, until):     all of them must be kept
        changes(directory, shape, states)
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.events import DIFF, ERROR, Action
from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.tables.commits import Manifest, manifest
from quipu.pipeline.tables.contract import (
    MOVED,
    NO_ROW,
    ROW_BITS,
    ROW_MASK,
    BucketState,
    DataRef,
    TableShape,
    UnknownVersion,
)
from quipu.pipeline.tables.fingerprint_search import sort_pairs
from quipu.pipeline.tables.merging import (
    I64,
    Entries,
    lookup,
    merge_runs,
    sort_by_fingerprint,
)
from quipu.pipeline.tables.sections import (
    columns_size,
    event_fingerprints,
    extra_count,
    read_columns,
    read_replaced,
    read_run,
)
from quipu.pipeline.tables.store import files_directory

BATCH_ROWS_MAX = 1 << 16  # of one batch of the result
BATCH_SIZE_MAX = 1 << 25  # about


def rows(
    directory: Path, shape: TableShape, state: BucketState, columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket."""
    entries = _holding(directory, shape, state)
    copies = copies_of(shape, entries)
    seen = np.flatnonzero(copies)
    places = places_of(shape, columns)
    yield from _selected(directory, shape, state.data, places,
                         _Wanted(entries.pointer[seen], copies[seen]))


def rows_of(
    directory: Path, shape: TableShape, state: BucketState, events: pa.Table,
) -> tuple[I64, pa.Table]:
    """The rows of the identities of events: which events have one, and these rows."""
    home = files_directory(directory)
    first, second = event_fingerprints(shape, events)
    order = sort_pairs(first, second)  # looking up is faster in order
    runs = [read_run(home, shape, each.file) for each in state.runs]
    known = lookup(runs, first[order], second[order], extra_count(shape))
    there = known.action == Action.ROW
    return order[there], _gathered(
        directory, shape, state.data, known.pointer[there], places_of(shape, None))


def errors(directory: Path, shape: TableShape, state: BucketState) -> Iterator[str]:
    """Outstanding errors of a bucket."""
    if not shape.events.errors or not state.errors:
        return
    entries = _holding(directory, shape, state)
    wrong = entries.pointer[entries.action == Action.ERROR]
    for batch in _batches(directory, shape, state.data, wrong, [0]):
        assert batch.schema.names == [ERROR.name]
        yield from batch.column(0).to_pylist()


def bucket_histories(directory: Path, since: int, until: int) -> list[list[BucketState]]:
    """The states, in the versions after `since` up to `until`, of each bucket that changed."""
    passed = _history(directory, since, until)
    found: dict[int, list[BucketState]] = {}
    for each in passed:
        for state in each.buckets:
            if state.version == each.version:
                found.setdefault(state.bucket, []).append(state)
    return [states for _, states in sorted(found.items())]


def _history(directory: Path, since: int, until: int) -> list[Manifest]:
    """The versions after `since` up to `until`, oldest first; all of them must be kept."""
    found: list[Manifest] = []
    version = until
    while version > since:
        found.append(manifest(directory, version))
        version = found[-1].base
    if version != since:
        raise UnknownVersion(f"{directory}: there is no version {since} before {until}")
    return found[::-1]


class _Change(NamedTuple):
    """For each changed identity: the pointer and number of copies before and after."""

    before: I64
    before_count: I64
    after: I64
    after_count: I64


def changes(
    directory: Path, shape: TableShape, states: Sequence[BucketState],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The changes of a bucket over consecutive versions."""
    changed = [state for state in states if state.changes]
    if not changed:
        return
    change = _composed(directory, shape, changed)
    # numbers of data files are never used twice, so one list serves all versions
    data = {each.number: each for state in changed for each in (*state.befores, *state.data)}
    places = places_of(shape, columns)
    step = _rows_at_once(directory, list(data.values()), places)
    for start in range(0, len(change.before), step):
        part = _Change(*(each[start:start + step] for each in change))
        changed = _changed_rows(directory, shape, list(data.values()), part, places)
        yield from (each for each in changed.combine_chunks().to_batches() if each.num_rows)


def _holding(directory: Path, shape: TableShape, state: BucketState) -> Entries:
    """The newest entry of each identity, from all runs."""
    home = files_directory(directory)
    runs = [read_run(home, shape, each.file) for each in state.runs]
    if not runs:
        none = np.zeros(0, np.int64)
        return Entries(none.astype(np.uint64), none.astype(np.uint64), none,
                       none.astype(np.uint8), (none,) * extra_count(shape))
    return merge_runs(runs, bottom=True, keep_deletes=False)


def _rows_at_once(directory: Path, data: Sequence[DataRef], places: Sequence[int]) -> int:
    """The number of rows to hold in memory: fewer if they are large."""
    home = files_directory(directory)
    size = sum(columns_size(home, each.file, places) for each in data)
    average = size // max(sum(each.rows for each in data), 1) + 1
    return max(1, min(BATCH_ROWS_MAX, BATCH_SIZE_MAX // average))


def places_of(shape: TableShape, columns: Sequence[str] | None) -> list[int]:
    """The indexes of the row's columns among the stored columns."""
    first = int(shape.events.errors)
    names = shape.events.row.names
    if columns is None:
        return list(range(first, first + len(names)))
    if not columns:
        raise ValueError("no column to read; the manifest knows how many rows there are")
    return [first + names.index(name) for name in columns]


class _Wanted(NamedTuple):
    """Which rows, and how many copies of each."""

    pointers: I64
    copies: I64


def _selected(
    directory: Path, shape: TableShape, data: Sequence[DataRef], places: Sequence[int],
    wanted: _Wanted,
) -> Iterator[pa.RecordBatch]:
    """Rows by pointers, in the order of the files, which is faster than sorting pointers."""
    home = files_directory(directory)
    sizes = np.array([each.rows for each in data], np.int64)
    ends = np.cumsum(sizes)
    file = np.searchsorted([each.number for each in data], wanted.pointers >> ROW_BITS)
    copies = np.zeros(sizes.sum(), np.int64)
    copies[(ends - sizes)[file] + (wanted.pointers & ROW_MASK)] = wanted.copies
    for each, end in zip(data, ends.tolist(), strict=True):
        times = copies[end - each.rows:end]
        if not times.any():
            continue
        yield from copied(read_columns(home, shape, each.file, places), times)


def copied(table: pa.Table, times: I64) -> Iterator[pa.RecordBatch]:
    """Each row as many times as `times` says, which may be many: a batch at a time."""
    if not (times > 1).any():
        kept = table if times.all() else table.filter(pa.array(times != 0))
        yield from kept.to_batches(max_chunksize=BATCH_ROWS_MAX)
        return
    ends = np.cumsum(times)
    for start in range(0, int(ends[-1]), BATCH_ROWS_MAX):
        copy = np.arange(start, min(start + BATCH_ROWS_MAX, int(ends[-1])))
        rows_of = np.searchsorted(ends, copy, side="right")
        yield from table.take(pa.array(rows_of)).to_batches()


def _batches(
    directory: Path, shape: TableShape, data: Sequence[DataRef], pointers: I64,
    places: Sequence[int],
) -> Iterator[pa.RecordBatch]:
    """Rows by pointers, sorted."""
    home = files_directory(directory)
    data = sorted(data)
    pointers = np.sort(pointers)
    starts = np.searchsorted(pointers, [each.number << ROW_BITS for each in data])
    ends = np.searchsorted(pointers, [(each.number + 1) << ROW_BITS for each in data])
    for each, start, end in zip(data, starts.tolist(), ends.tolist(), strict=True):
        if start == end:
            continue
        table = read_columns(home, shape, each.file, places)
        table = table.take(pa.array(pointers[start:end] & ROW_MASK))
        yield from table.to_batches(max_chunksize=BATCH_ROWS_MAX)


def _composed(directory: Path, shape: TableShape, states: Sequence[BucketState]) -> _Change:
    """The changes of several versions as one: from before the first to after the last."""
    home = files_directory(directory)
    runs = [read_run(home, shape, state.changes) for state in states]
    replaced = [read_replaced(home, state.changes) for state in states]
    first = np.concatenate([run.first for run in runs])
    second = np.concatenate([run.second for run in runs])
    before = np.concatenate([each.before for each in replaced])
    real = np.flatnonzero(before != MOVED)
    order, last = sort_by_fingerprint(first[real], second[real])
    order = real[order]
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    after = np.concatenate([run.pointer for run in runs])[order[ends]]
    shown = np.concatenate([copies_of(shape, run) for run in runs])[order[ends]]
    count = np.concatenate([each.before_count for each in replaced])[order[starts]]
    return _Change(before[order[starts]], count, np.where(shown > 0, after, NO_ROW), shown)


def copies_of(shape: TableShape, entries: Entries) -> I64:
    """The number of visible copies of each entry's row."""
    is_row = entries.action == Action.ROW
    copies: I64 = np.maximum(entries.extra[0], 0) * is_row if shape.counts else (
        is_row.astype(np.int64))
    return copies


def _changed_rows(
    directory: Path, shape: TableShape, data: Sequence[DataRef], change: _Change,
    places: Sequence[int],
) -> pa.Table:
    if shape.counts:
        diff = change.after_count - change.before_count
        known = np.where(change.after >= 0, change.after, change.before)
        moved = np.flatnonzero(diff)
        found = _gathered(directory, shape, data, known[moved], places)
        return _with_diff(found, diff[moved])
    return _replacements(directory, shape, data, change, places)


def _replacements(
    directory: Path, shape: TableShape, data: Sequence[DataRef], change: _Change,
    places: Sequence[int],
) -> pa.Table:
    """The removed rows and the added rows, without pairs of equal ones of one identity."""
    had, has = change.before >= 0, change.after >= 0
    both = had & has
    removed = _gathered(directory, shape, data, change.before[both], places)
    added = _gathered(directory, shape, data, change.after[both], places)
    if removed.num_rows:
        differ = pc.invert(_same(removed, added))
        removed, added = removed.filter(differ), added.filter(differ)
    parts = [removed, _gathered(directory, shape, data, change.before[had & ~has], places),
             added, _gathered(directory, shape, data, change.after[has & ~had], places)]
    signs = [np.full(part.num_rows, sign, np.int64)
             for part, sign in zip(parts, (-1, -1, 1, 1), strict=True)]
    return _with_diff(pa.concat_tables(parts), np.concatenate(signs))


def _gathered(
    directory: Path, shape: TableShape, data: Sequence[DataRef], pointers: I64,
    places: Sequence[int],
) -> pa.Table:
    """Rows by pointers, in the order of the pointers."""
    found = list(_batches(directory, shape, data, pointers, places))
    stored = shape.stored
    schema = pa.schema([stored.field(place) for place in places])
    table = pa.Table.from_batches(found, schema).combine_chunks()
    assert table.num_rows == len(pointers), (table.num_rows, len(pointers))
    back = np.empty(len(pointers), np.int64)
    back[np.argsort(pointers, kind="stable")] = np.arange(len(pointers))
    return table.take(pa.array(back))


def _same(one: pa.Table, other: pa.Table) -> pa.Array:
    """Which rows of two small tables are equal."""
    found = pa.array(np.ones(one.num_rows, np.bool_))
    for mine, its in zip(one.columns, other.columns, strict=True):
        columns = mine.combine_chunks(), its.combine_chunks()
        if pa.types.is_nested(mine.type) or pa.types.is_floating(mine.type):
            columns = encode_rows(columns[:1]), encode_rows(columns[1:])
        nulls = [column.is_null() for column in columns]
        equal = pc.and_not(pc.fill_null(pc.equal(*columns), True), pc.xor(*nulls))  # noqa: FBT003
        found = pc.and_(found, equal)
    return found


def _with_diff(table: pa.Table, diff: I64) -> pa.Table:
    return table.append_column(DIFF.field, pa.array(diff))
