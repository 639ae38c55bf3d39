"""`merge_bucket`: merges a batch of events into a bucket, on executors.

    merge_bucket(directory, shape, state, parcels, version) -> BucketState

`directory` is the table's, on a file system that driver and executors share; `state` the bucket
in the version before the batch (`Manifest.bucket`); `parcels` the bucket's share of the batch, in
any order; `version` the batch's number.  It writes new files and changes none, so that it can be
repeated, run twice at the same time, or discarded: the new state counts only when the driver has
committed it (`commits.commit`), and files that no version refers to are removed by cleaning.

The files of a batch:

    <version>-<bucket>-….data   the batch's rows, and rows that were moved out of files with few
                                living ones; the first such file also has the batch's run
    <version>-<bucket>-….run    now and then: several runs merged to one
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.events import DIFF, KIND, OFFSET, ORDER, SLOT_UNIT
from quipu.pipeline.envelopes.parcels import unpack
from quipu.pipeline.tables.compaction import files_to_rewrite, runs_to_merge
from quipu.pipeline.tables.contract import (
    MOVED,
    ROW_BITS,
    BucketState,
    DataRef,
    RunRef,
    TableShape,
)
from quipu.pipeline.tables.fingerprint_search import sort_pairs
from quipu.pipeline.tables.merging import (
    I64,
    Entries,
    Fold,
    concatenate,
    find,
    fold_counts,
    fold_latest,
    is_run,
    lookup,
    merge_runs,
    sort_by_fingerprint,
)
from quipu.pipeline.tables.sections import (
    MergedBatch,
    Replaced,
    Rows,
    event_fingerprints,
    extra_count,
    numbers,
    pointers,
    read_columns,
    read_fingerprints,
    read_run,
    rows_in_a_file,
    write_batch,
    write_run,
)
from quipu.pipeline.tables.waiting_events import released

_NUMBERS_COUNTED_MAX = 1 << 16  # a range of file numbers for which an array of counts is cheap


def files_directory(directory: Path) -> Path:
    """The directory with the files of a table's buckets."""
    return directory / "files"


def merge_bucket(
    directory: Path, shape: TableShape, state: BucketState, parcels: Iterable[bytes],
    version: int,
) -> BucketState:
    """Merge parcels, a bucket's share of a batch, into the bucket; returns its new state."""
    return merge_events(directory, shape, state, unpack(shape.events, parcels), version)


def merge_events(
    directory: Path, shape: TableShape, state: BucketState, events: pa.Table, version: int,
) -> BucketState:
    """Merge events, which are in order, into a bucket; returns its new state."""
    assert version > state.version, (version, state.version)
    state.invariants()
    home = files_directory(directory)
    if shape.events.timed:
        state, events = released(home, shape, state, events, version)
    runs = [read_run(home, shape, each.file) for each in state.runs]
    fold = fold_events(shape, runs, events)
    fold.invariants(events.num_rows)
    unchanged = replace(state, version=version, changes="", befores=())
    if len(fold.entries) == 0:
        return unchanged
    data = [each._replace(dead=each.dead + count) for each, count in zip(
        state.data, _per_file(state.data, fold.released), strict=True)]
    row_count = int(np.count_nonzero(fold.row >= 0))
    victims = files_to_rewrite(data, row_count, state.bucket)
    moved = [_living(home, shape, [fold.entries, *runs], victim) for victim in victims]
    batch = _batch(shape, events, fold, moved, state.next_number)
    written = write_batch(home, version, state.bucket, state.next_number, batch)
    run = RunRef(written[0].file, len(batch.entries))
    forgotten = {each.number for each in victims}
    before = _per_file(state.data, fold.before[fold.before >= 0])
    merged = replace(
        unchanged,
        runs=_compacted(home, shape, unchanged, [run, *state.runs], [batch.entries, *runs]),
        data=(*(each for each in data
                if each.dead < each.rows and each.number not in forgotten),
              *(each for each in written if each.rows)),
        next_number=state.next_number + len(written),
        rows=state.rows + fold.rows_added,
        errors=state.errors + fold.errors_added,
        changes=run.file,
        befores=tuple(each for each, count in zip(state.data, before, strict=True) if count),
    )
    merged.invariants()
    if not shape.counts:  # pipeline.T4: every row that is seen, or error, is one living row
        assert merged.living == merged.rows + merged.errors, merged
    return merged


def fold_events(shape: TableShape, runs: Sequence[Entries], events: pa.Table) -> Fold:
    """The changes of events, which are in order, to a bucket with these runs."""
    place = shape.events.place
    first, second = event_fingerprints(shape, events)
    if shape.counts:
        return fold_counts(runs, first, second, numbers(events, place(DIFF)))
    priority = ((numbers(events, place(ORDER)), numbers(events, place(OFFSET)))
                if shape.events.ordered else ())
    actions = numbers(events, place(KIND)) % np.uint8(SLOT_UNIT)
    return fold_latest(runs, first, second, actions, priority)


def _per_file(data: Sequence[DataRef], pointers_to: I64) -> list[int]:
    """The number of pointers into each file; `data` is in the order of numbers."""
    if len(pointers_to) == 0:
        return [0] * len(data)
    known = np.array([each.number for each in data])
    index = (pointers_to >> ROW_BITS) - known[0]
    if known[-1] - known[0] >= _NUMBERS_COUNTED_MAX:
        return [*map(int, np.bincount(np.searchsorted(known, index + known[0]),
                                      minlength=len(data)))]
    counts = np.bincount(index, minlength=known[-1] - known[0] + 1)[known - known[0]]
    assert counts.sum() == len(pointers_to)  # pipeline.T3: each is into a file of the bucket
    return [*map(int, counts)]


def _living(
    home: Path, shape: TableShape, runs: Sequence[Entries], victim: DataRef,
) -> tuple[Rows, Entries]:
    """The rows of a file that entries still point to, and the entry of each."""
    first, second = read_fingerprints(home, victim.file)
    order = sort_pairs(first, second)  # looking up is faster in order
    known = lookup(runs, first[order], second[order], extra_count(shape))
    own = (np.int64(victim.number) << ROW_BITS) | order
    living = known.pointer == own
    rows = order[living]
    in_file = np.argsort(rows)  # rows stay in the order in which they came
    entries = known.take(living).take(in_file)
    columns = read_columns(home, shape, victim.file, range(len(shape.stored)))
    columns = columns.take(pa.array(rows[in_file]))
    return Rows(entries.first, entries.second, columns), entries


def _batch(
    shape: TableShape, events: pa.Table, fold: Fold, moved: Sequence[tuple[Rows, Entries]],
    next_number: int,
) -> MergedBatch:
    """Rows and entries of a batch, and the rows that are moved, with their final pointers."""
    by_arrival = _by_arrival(fold.row, events.num_rows)
    columns = pa.concat_tables([
        _taken(_stored(shape, events), fold.row[by_arrival]),
        *(rows.columns for rows, _ in moved)])
    step = rows_in_a_file(columns)
    pointer = fold.entries.pointer.copy()
    pointer[by_arrival] = pointers(next_number, np.arange(len(by_arrival)), step)
    parts = [replace(fold.entries, pointer=pointer)]
    before = [fold.before]
    count = [fold.before_count]
    end = len(by_arrival)
    for _, entries in moved:
        place = pointers(next_number, np.arange(end, end + len(entries)), step)
        end += len(entries)
        held = find(fold.entries, entries.first, entries.second)
        pointer[held[held >= 0]] = place[held >= 0]  # a moved row whose count changes in the batch
        other = held < 0
        parts.append(replace(entries, pointer=place).take(other))
        before.append(np.full(np.count_nonzero(other), MOVED, np.int64))
        count.append(np.zeros(np.count_nonzero(other), np.int64))
    first = [fold.entries.first[by_arrival], *(rows.first for rows, _ in moved)]
    second = [fold.entries.second[by_arrival], *(rows.second for rows, _ in moved)]
    entries, replaced = concatenate(parts), Replaced(np.concatenate(before), np.concatenate(count))
    if moved:
        order, _ = sort_by_fingerprint(entries.first, entries.second)
        entries, replaced = entries.take(order), Replaced(*(each[order] for each in replaced))
    rows = Rows(np.concatenate(first), np.concatenate(second), columns)
    assert is_run(entries)  # pipeline.T2
    assert len(rows.first) == columns.num_rows == end, (len(rows.first), end)
    return MergedBatch(rows, entries, replaced)


def _by_arrival(rows: I64, count: int) -> I64:
    """The indexes of entries with a row, in the order of the events."""
    entry = np.full(count, -1, np.int64)
    has_row = np.flatnonzero(rows >= 0)
    entry[rows[has_row]] = has_row
    return entry[entry >= 0]


def _stored(shape: TableShape, events: pa.Table) -> pa.Table:
    return events.select(list(range(shape.events.stored_start, events.num_columns)))


def _taken(table: pa.Table, rows: I64) -> pa.Table:
    """Some rows, which are in order; faster than `take`, and free if it is all rows."""
    if len(rows) == table.num_rows:
        return table
    mask = np.zeros(table.num_rows, np.bool_)
    mask[rows] = True
    return table.filter(pa.array(mask))


def _compacted(
    home: Path, shape: TableShape, state: BucketState, refs: Sequence[RunRef],
    runs: Sequence[Entries],
) -> tuple[RunRef, ...]:
    """The runs of a bucket; the newest are merged to one if `compaction` says so."""
    count = runs_to_merge([each.entries for each in refs])
    if count < 2:
        return tuple(refs)
    merged = merge_runs(runs[:count], bottom=count == len(runs),
                        keep_deletes=shape.events.ordered)
    return (write_run(home, state.version, state.bucket, merged), *refs[count:])
