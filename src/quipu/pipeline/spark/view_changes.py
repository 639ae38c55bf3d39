"""What becomes of a view's rows from one version to another.

    changes(view, since, until)            the changelog of a view that has no table of results:
                                           its columns, and #diff
    signed_changes(view, before, after)    what a query makes of its sources' changes, for the
                                           next version of a result (`view_batches`)

Changes of a source come from its table's changelog, or are the rows that were added.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quipu.pipeline.spark.analysis import quoted
from quipu.pipeline.spark.relations import DIFF, grown_frame, table_changes
from quipu.pipeline.spark.versions import Growth, Version
from quipu.pipeline.spark.views import View, manifest_at


class Signed(NamedTuple):
    """Rows that came (1), or went (-1)."""

    sign: int
    frame: DataFrame

    @property
    def with_diff(self) -> DataFrame:
        return self.frame.withColumn(DIFF, f.lit(self.sign).cast("bigint"))


def changes(view: View, since: int, until: int) -> DataFrame:
    """See above."""
    changed = _changed(view, view.steps(since, until), since, until)
    return reduce(DataFrame.unionByName, (
        Signed(sign, _through(view, changed, sign)).with_diff
        for sign in _signs(view, range(len(view.names)))))


def signed_changes(
    view: View, before: Version, after: Version, *, query: str | None = None, product: bool,
    small: bool,
) -> Iterator[Signed]:
    """What the view's query, or another one, makes of the changes of its sources.

    Of a product, one source after the other goes from how it was to how it is; meanwhile, those
    in front of it are as they are, and those behind it as they were.  Small changes are brought
    to the tasks that read the others, and not the other way round.
    """
    moved = [number for number in range(len(view.names))
             if _has_changed(view, number, before, after)]
    if not moved:
        return
    if not product:
        changed = _changed(view, [after], before.number, after.number)
        for sign in _signs(view, moved):
            yield Signed(sign, _through(view, changed, sign, query=query))
        return
    for place in moved:
        name = view.names[place]
        changed = {other: view.source_frame(other, after if number < place else before)
                   for number, other in enumerate(view.names) if number != place}
        changed[name] = _source_changes(view, name, [after], before.number, after.number)
        for sign in _signs(view, [place]):
            yield Signed(sign, _through(view, changed, sign, query=query, small=small))


def _signs(view: View, numbers: Iterable[int]) -> tuple[int, ...]:
    """Rows of a source that has no table by key only come."""
    return (1, -1) if any(number in view.shapes for number in numbers) else (1,)


def _has_changed(view: View, number: int, before: Version, after: Version) -> bool:
    if number not in view.shapes:
        return bool(after.grown.get(number, Growth()).added)
    directory = view.feed.tributaries[number].directory
    return (manifest_at(directory, before.number).version
            != manifest_at(directory, after.number).version)


def _through(
    view: View, changed: Mapping[str, DataFrame], sign: int, *, query: str | None = None,
    small: bool = False,
) -> DataFrame:
    """A query over what came, or over what went; and over what is there."""
    def leaf(name: str) -> DataFrame:
        if DIFF not in changed[name].columns:
            return changed[name]
        count = (f.col(quoted(DIFF)) * sign).cast("int")
        frame = changed[name].where(count > 0)
        copies = frame.withColumn("#copy", f.explode(f.array_repeat(f.lit(0), count)))
        found = view.shown(name, copies.drop("#copy", DIFF))
        return f.broadcast(found) if small else found

    return view.through_query(leaf, query)


def _changed(
    view: View, steps: Sequence[Version], since: int, until: int,
) -> dict[str, DataFrame]:
    return {name: _source_changes(view, name, steps, since, until) for name in view.names}


def _source_changes(
    view: View, name: str, steps: Sequence[Version], since: int, until: int,
) -> DataFrame:
    number = view.names.index(name)
    columns = view.columns(number)
    tributary = view.feed.tributaries[number]
    if number in view.shapes:
        before, after = (view.table(number, version) for version in (since, until))
        return table_changes(view.spark, after, before.manifest.version, columns)
    pieces = [piece for step in steps for piece in step.grown.get(number, Growth()).added]
    found = grown_frame(view.spark, tributary.rows, view.row(number), pieces, columns)
    return found.withColumn(DIFF, f.lit(1).cast("bigint"))
