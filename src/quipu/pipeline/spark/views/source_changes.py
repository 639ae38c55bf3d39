"""A view's query over the changes of its sources, from one version to another.

    view_changes(view, since, until)       the changelog of a view that has no table of results:
                                           its columns, and #diff
    signed_changes(view, before, after)    a query over its sources' changes, for the next version
                                           of the table of results (`results.py`)

The changes of a source come from its table's changelog, or are the rows that were appended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quipu.pipeline.spark.queries.relations import appended_frame, table_changes_frame
from quipu.pipeline.spark.views.view import View
from quipu.pipeline.sql.query_names import quoted
from quipu.pipeline.views.changes import DIFF
from quipu.pipeline.views.versions import AppendTable, Version
from quipu.pipeline.views.view_files import manifest_at


class SignedRows(NamedTuple):
    """Rows that were added, if the sign is 1, or removed, if it is -1."""

    sign: int
    frame: DataFrame

    @property
    def with_diff(self) -> DataFrame:
        return self.frame.withColumn(DIFF, f.lit(self.sign).cast("bigint"))


def view_changes(view: View, since: int, until: int) -> DataFrame:
    """The rows that were added and removed from one version of a view to another, with #diff."""
    changed = _changed(view, view.files.between(since, until), since, until)
    return reduce(DataFrame.unionByName, (
        SignedRows(sign, _through(view, changed, sign)).with_diff
        for sign in _signs(view, range(len(view.names)))))


def signed_changes(
    view: View, before: Version, after: Version, *, query: str | None = None, product: bool,
    small: bool,
) -> Iterator[SignedRows]:
    """The view's query, or another one, over the changes of its sources.

    In a product, one source after the other is replaced by its changes, while the sources before it
    are as in `after`, and those after it as in `before`.  Small changes are broadcast to the tasks
    that read the other sources.
    """
    moved = [number for number in range(len(view.names))
             if _has_changed(view, number, before, after)]
    if not moved:
        return
    if not product:
        changed = _changed(view, [after], before.number, after.number)
        for sign in _signs(view, moved):
            yield SignedRows(sign, _through(view, changed, sign, query=query))
        return
    for place in moved:
        name = view.names[place]
        changed = {other: view.source_frame(other, after if number < place else before)
                   for number, other in enumerate(view.names) if number != place}
        changed[name] = _source_changes(view, name, [after], before.number, after.number)
        for sign in _signs(view, [place]):
            yield SignedRows(sign, _through(view, changed, sign, query=query, small=small))


def _signs(view: View, numbers: Iterable[int]) -> tuple[int, ...]:
    """1 and -1; only 1 if no source has a table by key, because then no row is ever removed."""
    return (1, -1) if any(number in view.files.shapes for number in numbers) else (1,)


def _has_changed(view: View, number: int, before: Version, after: Version) -> bool:
    if number not in view.files.shapes:
        return bool(after.appended.get(number, AppendTable()).added)
    directory = view.files.inputs.sources[number].directory
    return (manifest_at(directory, before.number).version
            != manifest_at(directory, after.number).version)


def _through(
    view: View, changed: Mapping[str, DataFrame], sign: int, *, query: str | None = None,
    small: bool = False,
) -> DataFrame:
    """A query over the rows of sources; of rows with #diff only those with that sign."""
    def leaf(name: str) -> DataFrame:
        if DIFF not in changed[name].columns:
            return changed[name]
        count = (f.col(quoted(DIFF)) * sign).cast("int")
        frame = changed[name].where(count > 0)
        copies = frame.withColumn("#copy", f.explode(f.array_repeat(f.lit(0), count)))
        found = view.with_all_columns(name, copies.drop("#copy", DIFF))
        return f.broadcast(found) if small else found

    return view.through_query(leaf, query)


def _changed(
    view: View, between: Sequence[Version], since: int, until: int,
) -> dict[str, DataFrame]:
    return {name: _source_changes(view, name, between, since, until) for name in view.names}


def _source_changes(
    view: View, name: str, between: Sequence[Version], since: int, until: int,
) -> DataFrame:
    number = view.names.index(name)
    columns = view.stored_columns(number)
    source_input = view.files.inputs.sources[number]
    if number in view.files.shapes:
        before, after = (view.files.table(number, version) for version in (since, until))
        return table_changes_frame(view.spark, after, before.manifest.version, columns)
    added = [file for version in between
             for file in version.appended.get(number, AppendTable()).added]
    found = appended_frame(view.spark, source_input.rows, view.files.row_schema(number), added,
                           columns)
    return found.withColumn(DIFF, f.lit(1).cast("bigint"))
