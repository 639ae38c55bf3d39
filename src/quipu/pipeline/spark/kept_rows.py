"""Views whose rows are in files as they are: read from there, without a query.

A view that picks columns of one source is that source's table.  A view with a table of results is
that table, or, if that has groups, what their parts add up to.  Whoever follows such a view wants
its rows in the driver, and a query that only brings them there takes longer than to read them.

Batches have the columns of the view; those of changes also `#diff`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.spark.growing import Piece, read_pieces
from quipu.pipeline.spark.relations import DIFF
from quipu.pipeline.spark.versions import Growth, Version
from quipu.pipeline.spark.views import View
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.reading import bucket_histories, changes, rows


def are_kept(view: View) -> bool:
    """Are the rows of a view in files as they are?"""
    return view.result is not None or view.plan.analysis.picks is not None


def kept_rows(view: View, version: Version) -> Iterator[pa.RecordBatch]:
    """What a version holds."""
    table = _table(view, version.number)
    if table is None:
        yield from _grown(view, version.grown.get(0, Growth()).pieces)
        return
    for state in table.manifest.buckets:
        for batch in rows(table.directory, table.shape, state, _read(view)):
            yield _shown(view, batch)


def kept_changes(view: View, since: int, until: int) -> Iterator[pa.RecordBatch]:
    """What became of the rows from one version to another."""
    before, after = _table(view, since), _table(view, until)
    if before is None or after is None:
        added = [piece for step in view.steps(since, until)
                 for piece in step.grown.get(0, Growth()).added]
        for batch in _grown(view, added):
            yield batch.append_column(DIFF, pa.array(np.ones(batch.num_rows, np.int64)))
        return
    for states in bucket_histories(
            after.directory, before.manifest.version, after.manifest.version):
        for batch in changes(after.directory, after.shape, states, _read(view)):
            found = _shown(view, batch).append_column(DIFF, batch.column(DIFF))
            yield found if view.plan.grouped is None else _added_up(found)


def _table(view: View, version: int) -> TableAt | None:
    """The table that has the rows; None if they are in a table that only grows."""
    if view.result is not None:
        return view.result_at(version)
    return view.table(0, version) if view.shapes else None


def _grown(view: View, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    (tributary,) = view.feed.tributaries
    for batch in read_pieces(tributary.rows, view.row(0), pieces, _read(view)):
        yield _shown(view, batch)


def _picked(view: View) -> Sequence[str]:
    """Columns of the table, one for each column of the view."""
    picks = view.plan.analysis.picks
    return view.schema.names if view.result is not None or picks is None else picks


def _read(view: View) -> list[str]:
    """Columns of the table that are needed."""
    if view.plan.grouped is not None:
        return list(view.plan.grouped.schema.names)
    return list(dict.fromkeys(_picked(view)))


def _shown(view: View, batch: pa.RecordBatch) -> pa.RecordBatch:
    if view.plan.grouped is not None:
        columns = [each.of(batch) for each in view.plan.grouped.aggregation.items]
    else:
        columns = [batch.column(name) for name in _picked(view)]
    return pa.RecordBatch.from_arrays(columns, names=view.schema.names).cast(view.schema)


def _added_up(changed: pa.RecordBatch) -> pa.RecordBatch:
    """Each row once: parts of a group may change, and what is shown of it may not."""
    rows = pa.table([encode_rows(changed.columns[:-1]), changed.column(DIFF),
                     pa.array(np.arange(changed.num_rows))], ["row", "diff", "place"])
    found = rows.group_by("row", use_threads=False).aggregate([("diff", "sum"), ("place", "min")])
    found = found.filter(pc.not_equal(found.column("diff_sum"), 0))
    first = changed.take(found.column("place_min").combine_chunks())
    return first.set_column(first.num_columns - 1, first.schema.field(DIFF),
                            found.column("diff_sum").combine_chunks())
