"""Rows and changes of views whose rows are in files as they are, read without a query.

A view that picks columns of one source is that source's table.  A view with a table of results is
that table, or, with GROUP BY, what its partial aggregates add up to.  SUBSCRIBE and sinks need the
rows in the driver, and a query that only brings them there takes longer than reading the files.

Batches have the columns of the view; those of changes also `#diff`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.reading import bucket_histories, changes, rows
from quipu.pipeline.views.aggregation import GroupedQuery
from quipu.pipeline.views.append_files import RowFile, read_rows
from quipu.pipeline.views.changes import DIFF
from quipu.pipeline.views.versions import AppendTable, Version
from quipu.pipeline.views.view_files import ViewFiles


@dataclass(frozen=True)
class StoredColumns:
    """How the columns of a view follow from those of the table that has its rows."""

    schema: pa.Schema  # of the view
    picked: tuple[str, ...]  # without GROUP BY: a column of the table for each of the view
    grouped: GroupedQuery | None = None

    @property
    def read(self) -> list[str]:
        """The columns of the table that are read."""
        if self.grouped is not None:
            return list(self.grouped.schema.names)
        return list(dict.fromkeys(self.picked))

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the table as the view shows it."""
        if self.grouped is not None:
            columns = [each.of(batch) for each in self.grouped.aggregation.columns]
        else:
            columns = [batch.column(name) for name in self.picked]
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names).cast(self.schema)


def stored_rows(
    files: ViewFiles, columns: StoredColumns, version: Version,
) -> Iterator[pa.RecordBatch]:
    """The rows of a view in one version."""
    table = _table(files, version.number)
    if table is None:
        yield from _appended(files, columns, version.appended.get(0, AppendTable()).files)
        return
    for state in table.manifest.buckets:
        for batch in rows(table.directory, table.shape, state, columns.read):
            yield columns.shown(batch)


def stored_changes(
    files: ViewFiles, columns: StoredColumns, since: int, until: int,
) -> Iterator[pa.RecordBatch]:
    """The rows that came and went from one version of a view to another, with `#diff`."""
    before, after = _table(files, since), _table(files, until)
    if before is None or after is None:
        added = [file for version in files.between(since, until)
                 for file in version.appended.get(0, AppendTable()).added]
        for batch in _appended(files, columns, added):
            yield batch.append_column(DIFF, pa.array(np.ones(batch.num_rows, np.int64)))
        return
    for states in bucket_histories(
            after.directory, before.manifest.version, after.manifest.version):
        for batch in changes(after.directory, after.shape, states, columns.read):
            found = columns.shown(batch).append_column(DIFF, batch.column(DIFF))
            yield found if columns.grouped is None else _added_up(found)


def _table(files: ViewFiles, version: int) -> TableAt | None:
    """The table by key that has the rows; None if they are in an append-only table."""
    if files.result is not None:
        return files.result_at(version)
    return files.table(0, version) if files.shapes else None


def _appended(
    files: ViewFiles, columns: StoredColumns, those: Sequence[RowFile],
) -> Iterator[pa.RecordBatch]:
    (source_input,) = files.inputs.sources
    for batch in read_rows(source_input.rows, files.row_schema(0), those, columns.read):
        yield columns.shown(batch)


def _added_up(changed: pa.RecordBatch) -> pa.RecordBatch:
    """Changes with those of equal rows added up, and without those that cancel out.

    A group's partial aggregates may change although what the view shows of it does not.
    """
    rows = pa.table([encode_rows(changed.columns[:-1]), changed.column(DIFF),
                     pa.array(np.arange(changed.num_rows))], ["row", "diff", "place"])
    found = rows.group_by("row", use_threads=False).aggregate([("diff", "sum"), ("place", "min")])
    found = found.filter(pc.not_equal(found.column("diff_sum"), 0))
    first = changed.take(found.column("place_min").combine_chunks())
    return first.set_column(first.num_columns - 1, first.schema.field(DIFF),
                            found.column("diff_sum").combine_chunks())
