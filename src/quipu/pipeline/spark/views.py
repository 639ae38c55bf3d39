"""A materialized view: its tables on disk, and what can be read from them.

    <folder>/checkpoint/        Spark's: how far the stream is
    <folder>/tables/<n>-<source>/   rows, or a table by key, and dead letters, of one source
    <folder>/result/            only if the query cannot be followed row by row (`results.py`)
    <folder>/versions/          which messages each version has seen (`versions.py`)

A query that treats every row on its own is not kept twice: the view is the tables of its sources,
read through the query, and its changelog is the query over theirs.  `view_batches.py` makes new
versions, this module reads them; a version, once it is there, never changes.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.envelopes.events import EventShape, event_shape
from quipu.pipeline.reading.positions import Positions
from quipu.pipeline.source import ErrorPolicy, Source
from quipu.pipeline.spark import versions
from quipu.pipeline.spark.analysis import Analysis, quoted, spark_schema
from quipu.pipeline.spark.feed import Feed, Tributary
from quipu.pipeline.spark.growing import read_pieces
from quipu.pipeline.spark.merging import TableAt
from quipu.pipeline.spark.pruning import pruned
from quipu.pipeline.spark.relations import (
    DIFF,
    from_tasks,
    grown_frame,
    nullable,
    shown,
    some_columns,
    table_changes,
    table_frame,
)
from quipu.pipeline.spark.scope import Leaf, Scope
from quipu.pipeline.spark.versions import NO_VERSION, Growth, Version
from quipu.pipeline.tables import commits
from quipu.pipeline.tables.commits import Manifest
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.reading import errors, history
from quipu.pipeline.types import schema_of

HOLD_SECONDS = 600.0  # how long a version that somebody reads is kept at least
ERRORS_SHOWN_MAX = 5


@dataclass(frozen=True)
class Plan:
    """A view as it was understood: its query, and its sources."""

    name: str
    query: str
    scope: Scope
    sources: Mapping[str, Source]  # those that it needs
    analysis: Analysis
    buckets: int  # of tables that are made anew
    batch_offsets_max: int

    @cached_property
    def schema(self) -> pa.Schema:
        """The view's columns."""
        return nullable(to_arrow_schema(self.analysis.schema, timezone="UTC"))

    @property
    def only_grows(self) -> bool:
        """Is no row ever taken back?"""
        keyed = any(source.is_keyed for source in self.sources.values())
        return self.analysis.is_linear and not keyed


class View:
    """See above."""

    def __init__(self, spark: SparkSession, plan: Plan, folder: Path) -> None:
        self.spark = spark
        self.plan = plan
        self.folder = folder
        self.names = sorted(plan.sources)
        self.versions = folder / "versions"
        self.checkpoint = folder / "checkpoint"
        self.versions.mkdir(parents=True, exist_ok=True)
        self._holds: dict[int, float] = {}
        self.keepers: list[Callable[[], int | None]] = []  # versions that sinks still need

    @cached_property
    def feed(self) -> Feed:
        """What the view's stream reads."""
        return Feed(tuple(self._tributary(number, name) for number, name in enumerate(self.names)),
                    self.versions, self.plan.batch_offsets_max)

    def _tributary(self, number: int, name: str) -> Tributary:
        found = pruned(self.plan.sources[name], self.plan.analysis.needed[name])
        directory = self.folder / "tables" / f"{number}-{quote(name, safe='')}"
        directory.mkdir(parents=True, exist_ok=True)
        if not found.source.is_keyed:
            return Tributary(found, directory)
        events = event_shape(found.source)
        shape = _table(directory, events, 1 if events.timed else self.plan.buckets)
        return Tributary(found, directory, shape.buckets)

    @cached_property
    def shapes(self) -> dict[int, TableShape]:
        """The tables by key among the tables of the sources."""
        return {number: commits.open_shape(each.directory)
                for number, each in enumerate(self.feed.tributaries) if each.buckets}

    @property
    def schema(self) -> pa.Schema:
        """The view's columns."""
        return self.plan.schema

    @cached_property
    def result(self) -> tuple[Path, TableShape] | None:
        """The table of results, if the view needs one."""
        from quipu.pipeline.spark.results import result_shape  # noqa: PLC0415

        if self.plan.analysis.is_linear:
            return None
        directory = self.folder / "result"
        return directory, _table(directory, result_shape(self.schema), self.plan.buckets)

    # -- versions

    def latest(self) -> Version:
        """The newest version."""
        return versions.latest(self.versions)

    def has_seen(self, places: Sequence[Positions]) -> bool:
        """Does the newest version have all messages before these?"""
        seen = self.latest().places
        return len(seen) == len(places) and all(
            mine.get(partition, 0) >= offset
            for mine, wanted in zip(seen, places, strict=True)
            for partition, offset in wanted.items()
        )

    def hold(self, number: int) -> None:
        """Keep a version, and all after it, for a while: somebody reads it."""
        self._holds[number] = time.monotonic() + HOLD_SECONDS

    def oldest_needed(self, newest: int, keep: int) -> int:
        """The oldest version that must not go."""
        now = time.monotonic()
        self._holds = {number: until for number, until in self._holds.items() if until > now}
        wanted = [number for number in (keeper() for keeper in self.keepers) if number is not None]
        return min([newest - keep, *self._holds, *wanted])

    def check(self, version: Version) -> None:
        """Raise if a strict source has errors in this version."""
        for number, each in enumerate(self.feed.tributaries):
            source = each.source.source
            if source.errors is ErrorPolicy.STRICT:
                found = list(self._errors(number, version))
                if found:
                    raise OutstandingErrors(f"source {source.name}: " + "; ".join(found))

    def _errors(self, number: int, version: Version) -> Iterator[str]:
        tributary = self.feed.tributaries[number]
        if tributary.buckets:
            base = self.table(number, version.number)
            for state in base.manifest.buckets:
                for text in errors(base.directory, base.shape, state):
                    yield text
                    return
        for batch in read_pieces(tributary.dead, LETTERS,
                                 version.dead.get(number, Growth()).pieces, ["error"]):
            yield from batch.column(0).to_pylist()[:ERRORS_SHOWN_MAX]
            return

    # -- rows

    def frame(self, version: Version) -> DataFrame:
        """The view's rows."""
        if self.result is not None:
            directory, shape = self.result
            base = TableAt(directory, shape, manifest_at(directory, version.number))
            return table_frame(self.spark, base, self.schema.names)
        return self.through_query(lambda name: self.source_frame(name, version))

    def through_query(self, leaf: Leaf) -> DataFrame:
        """The view's query over DataFrames of its sources."""
        scope = self.plan.scope
        return scope.frame(self.plan.query, lambda name: (
            leaf(name) if name in self.names else scope.blank(name)))

    def source_frame(self, name: str, version: Version) -> DataFrame:
        """The rows of a source, as the query sees them."""
        number = self.names.index(name)
        columns = self._columns(number)
        if number in self.shapes:
            found = table_frame(self.spark, self.table(number, version.number), columns)
        else:
            tributary = self.feed.tributaries[number]
            pieces = version.grown.get(number, Growth()).pieces
            found = grown_frame(self.spark, tributary.rows, self.row(number), pieces, columns)
        return self._shown(name, found)

    def dead_letters(self, name: str, version: Version) -> DataFrame:
        """The records of a source that could not be used."""
        number = self.names.index(name)
        pieces = version.dead.get(number, Growth()).pieces
        return grown_frame(self.spark, self.feed.tributaries[number].dead, LETTERS, pieces,
                           LETTERS.names)

    def table(self, number: int, version: int) -> TableAt:
        """A source's table by key."""
        directory = self.feed.tributaries[number].directory
        return TableAt(directory, self.shapes[number], manifest_at(directory, version))

    def row(self, number: int) -> pa.Schema:
        """The columns of a source, as far as the view needs them."""
        return schema_of(self.feed.tributaries[number].source.source.columns)

    def _columns(self, number: int) -> list[str]:
        return some_columns(self.row(number), self.plan.analysis.needed[self.names[number]])

    def _shown(self, name: str, frame: DataFrame) -> DataFrame:
        return shown(frame, spark_schema(schema_of(self.plan.sources[name].columns)))

    # -- changes

    def steps(self, since: int, until: int) -> list[Version]:
        """The versions after one up to another, oldest first."""
        found: list[Version] = []
        number = until
        while number > since:
            found.append(versions.read(self.versions, number))
            number = found[-1].base
        return found[::-1]

    def changes(self, since: int, until: int) -> DataFrame:
        """What became of the rows from one version to another: the columns, and #diff."""
        if self.result is not None:
            directory, shape = self.result
            return self._table_changes(directory, shape, since, until, self.schema.names)
        steps = self.steps(since, until)
        changed = {name: self._source_changes(name, steps, since, until) for name in self.names}
        return self._through(changed, 1).unionByName(self._through(changed, -1))

    def product_changes(
        self, before: Version, after: Version, *, small: bool,
    ) -> list[DataFrame]:
        """What became of the rows of an inner join, from one version to the next, in parts.

        One source after the other goes from how it was to how it is; meanwhile, those in front of
        it are as they are, and those behind it as they were.  Small changes are brought to the
        tasks that read the others, and not the other way round.
        """
        parts = []
        for place, name in enumerate(self.names):
            if not self._has_changed(place, before, after):
                continue
            changed = self._source_changes(name, [after], before.number, after.number)
            frames = {
                other: self.source_frame(other, after if number < place else before)
                for number, other in enumerate(self.names) if number != place
            }
            parts += [self._through({**frames, name: changed}, sign, small=small)
                      for sign in (1, -1)]
        return parts

    def _has_changed(self, number: int, before: Version, after: Version) -> bool:
        if number not in self.shapes:
            return bool(after.grown.get(number, Growth()).added)
        directory = self.feed.tributaries[number].directory
        return (manifest_at(directory, before.number).version
                != manifest_at(directory, after.number).version)

    def _through(
        self, changed: Mapping[str, DataFrame], sign: int, *, small: bool = False,
    ) -> DataFrame:
        """The query over what came, or over what went; and over what is there."""
        def leaf(name: str) -> DataFrame:
            if DIFF not in changed[name].columns:
                return changed[name]
            count = (f.col(quoted(DIFF)) * sign).cast("int")
            frame = changed[name].where(count > 0)
            copies = frame.withColumn("#copy", f.explode(f.array_repeat(f.lit(0), count)))
            found = self._shown(name, copies.drop("#copy", DIFF))
            return f.broadcast(found) if small else found

        return self.through_query(leaf).withColumn(DIFF, f.lit(sign).cast("bigint"))

    def _source_changes(
        self, name: str, steps: Sequence[Version], since: int, until: int,
    ) -> DataFrame:
        number = self.names.index(name)
        columns = self._columns(number)
        if number in self.shapes:
            directory = self.feed.tributaries[number].directory
            return self._table_changes(directory, self.shapes[number], since, until, columns)
        pieces = [piece for step in steps for piece in step.grown.get(number, Growth()).added]
        rows = self.feed.tributaries[number].rows
        found = grown_frame(self.spark, rows, self.row(number), pieces, columns)
        return found.withColumn(DIFF, f.lit(1).cast("bigint"))

    def _table_changes(
        self, directory: Path, shape: TableShape, since: int, until: int, columns: Sequence[str],
    ) -> DataFrame:
        newest = manifest_at(directory, until)
        oldest = manifest_at(directory, since)
        base = TableAt(directory, shape, newest)
        if newest.version == oldest.version:
            fields = [shape.events.row.field(name) for name in columns]
            return from_tasks(self.spark, pa.schema([*fields, pa.field(DIFF, pa.int64())]), [])
        passed = history(directory, oldest.version, newest.version)
        return table_changes(self.spark, base, passed, columns)


def manifest_at(directory: Path, version: int) -> Manifest:
    """A table as it was in a version of the view; it may not have changed in that very one."""
    known = [each for each in commits.versions(directory) if each <= version]
    return commits.manifest(directory, known[-1]) if known else Manifest(NO_VERSION, NO_VERSION)


def _table(directory: Path, events: EventShape, buckets: int) -> TableShape:
    """A table that is there, or is made; nobody knows its secret."""
    return commits.create(directory, events, buckets=buckets, secret=secrets.token_bytes(16))
