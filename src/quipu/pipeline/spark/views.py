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
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.envelopes.events import EventShape, event_shape
from quipu.pipeline.reading.positions import Reached, recreated_topics
from quipu.pipeline.source import ErrorPolicy, Source
from quipu.pipeline.spark import versions
from quipu.pipeline.spark.aggregates import Grouped, group_shape, shown_groups
from quipu.pipeline.spark.analysis import Analysis, spark_schema
from quipu.pipeline.spark.feed import Feed, Tributary
from quipu.pipeline.spark.growing import read_pieces
from quipu.pipeline.spark.pruning import pruned
from quipu.pipeline.spark.relations import (
    grown_frame,
    nullable,
    shown,
    some_columns,
    table_frame,
)
from quipu.pipeline.spark.results import result_shape
from quipu.pipeline.spark.scope import Leaf, Scope
from quipu.pipeline.spark.versions import NO_VERSION, Growth, Version
from quipu.pipeline.tables import commits
from quipu.pipeline.tables.commits import Manifest, TableAt
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.reading import errors
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
    grouped: Grouped | None  # where changes can be added to groups
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
        self._holding = threading.Lock()
        self._latest = Version()
        self.job_group = ""  # of Spark's jobs of its stream
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
        if self.plan.analysis.is_linear:
            return None
        directory = self.folder / "result"
        grouped = self.plan.grouped
        events = result_shape(self.schema) if grouped is None else group_shape(grouped.schema)
        return directory, _table(directory, events, self.plan.buckets)

    # -- versions

    def latest(self) -> Version:
        """The newest version; a version never changes, so each is read once."""
        newest = versions.newest(self.versions)
        if self._latest.number != newest:
            self._latest = versions.latest(self.versions)
        return self._latest

    def steps(self, since: int, until: int) -> list[Version]:
        """The versions after one up to another, oldest first."""
        found: list[Version] = []
        number = until
        while number > since:
            found.append(versions.read(self.versions, number))
            number = found[-1].base
        return found[::-1]

    def has_seen(self, places: Sequence[Reached]) -> bool:
        """Does the newest version have all messages before these?"""
        seen = self.latest().places
        return len(seen) == len(places) and all(
            not recreated_topics(mine, wanted.topic_ids) and all(
                mine.positions.get(partition, 0) >= offset
                for partition, offset in wanted.positions.items())
            for mine, wanted in zip(seen, places, strict=True)
        )

    def hold(self, number: int) -> None:
        """Keep a version, and all after it, for a while: somebody reads it."""
        with self._holding:
            self._holds[number] = time.monotonic() + HOLD_SECONDS

    def oldest_needed(self, newest: int, keep: int) -> int:
        """The oldest version that must not go."""
        now = time.monotonic()
        with self._holding:
            self._holds = {number: until for number, until in self._holds.items() if until > now}
            held = list(self._holds)
        wanted = [number for number in (keeper() for keeper in self.keepers) if number is not None]
        return min([newest - keep, *held, *wanted])

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
        if self.result is None:
            return self.through_query(lambda name: self.source_frame(name, version))
        base = self.result_at(version.number)
        found = table_frame(self.spark, base, base.shape.events.row.names)
        return found if self.plan.grouped is None else shown_groups(found, self.plan.grouped)

    def through_query(self, leaf: Leaf, query: str | None = None) -> DataFrame:
        """The view's query, or another one, over DataFrames of its sources."""
        scope = self.plan.scope
        return scope.frame(query or self.plan.query, lambda name: (
            leaf(name) if name in self.names else scope.blank(name)))

    def source_frame(self, name: str, version: Version) -> DataFrame:
        """The rows of a source, as the query sees them."""
        number = self.names.index(name)
        columns = self.columns(number)
        if number in self.shapes:
            found = table_frame(self.spark, self.table(number, version.number), columns)
        else:
            tributary = self.feed.tributaries[number]
            pieces = version.grown.get(number, Growth()).pieces
            found = grown_frame(self.spark, tributary.rows, self.row(number), pieces, columns)
        return self.shown(name, found)

    def dead_letters(self, name: str, version: Version) -> DataFrame:
        """The records of a source that could not be used."""
        number = self.names.index(name)
        pieces = version.dead.get(number, Growth()).pieces
        return grown_frame(self.spark, self.feed.tributaries[number].dead, LETTERS, pieces,
                           LETTERS.names)

    def result_at(self, version: int) -> TableAt:
        """The table of results."""
        assert self.result is not None, self.plan.name
        directory, shape = self.result
        return TableAt(directory, shape, manifest_at(directory, version))

    def table(self, number: int, version: int) -> TableAt:
        """A source's table by key."""
        directory = self.feed.tributaries[number].directory
        return TableAt(directory, self.shapes[number], manifest_at(directory, version))

    def row(self, number: int) -> pa.Schema:
        """The columns of a source, as far as the view needs them."""
        return schema_of(self.feed.tributaries[number].source.source.columns)

    def columns(self, number: int) -> list[str]:
        """The columns of a source that are read from its table."""
        return some_columns(self.row(number), self.plan.analysis.needed[self.names[number]])

    def shown(self, name: str, frame: DataFrame) -> DataFrame:
        """A source with all of its columns, as the query wants it."""
        return shown(frame, spark_schema(schema_of(self.plan.sources[name].columns)))


def manifest_at(directory: Path, version: int) -> Manifest:
    """A table as it was in a version of the view; it may not have changed in that very one."""
    known = [each for each in commits.versions(directory) if each <= version]
    return commits.manifest(directory, known[-1]) if known else Manifest(NO_VERSION, NO_VERSION)


def _table(directory: Path, events: EventShape, buckets: int) -> TableShape:
    """A table that is there, or is made; nobody knows its secret."""
    return commits.create(directory, events, buckets=buckets, secret=secrets.token_bytes(16))
