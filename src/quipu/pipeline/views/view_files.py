"""A materialized view on disk: its folders, its tables, and its versions.

    <folder>/checkpoint/            Spark's: how far the streaming query is
    <folder>/tables/<n>-<source>/   rows, or a table by key, and dead letters, of one source
    <folder>/result/                the table of results, if the query needs one
    <folder>/versions/              which messages each version has seen (`versions.py`)

Tables are created when they are first used.  `batch_commit.py` makes new versions; a version,
once it is published, never changes, and is kept at least while it is held.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.envelopes.events import EventShape, event_shape
from quipu.pipeline.execution.pruning import PrunedSource
from quipu.pipeline.reading.positions import Reached, recreated_topics
from quipu.pipeline.source import ErrorPolicy
from quipu.pipeline.tables import commits
from quipu.pipeline.tables.commits import Manifest, TableAt
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.reading import errors
from quipu.pipeline.types import schema_of
from quipu.pipeline.views import versions
from quipu.pipeline.views.append_files import read_rows
from quipu.pipeline.views.inputs import SourceInput, ViewInputs
from quipu.pipeline.views.versions import NO_VERSION, AppendTable, Version

HOLD_SECONDS = 600.0  # how long a version that is being read is kept at least
ERRORS_SHOWN_MAX = 5


class ViewFiles:
    """The files of one view; `result` is the shape of its table of results, if it has one."""

    def __init__(
        self, folder: Path, sources: Mapping[str, PrunedSource], *, result: EventShape | None,
        buckets: int, batch_offsets_max: int,
    ) -> None:
        self.folder = folder
        self.names = sorted(sources)  # a source's number is its place here
        self.versions = folder / "versions"
        self.checkpoint = folder / "checkpoint"
        self.holders: list[Callable[[], int | None]] = []  # the oldest versions that sinks need
        self._sources = sources
        self._result = result
        self._buckets = buckets  # of tables that are created
        self._batch_offsets_max = batch_offsets_max
        self._held: dict[int, float] = {}  # until when a version is kept, by monotonic clock
        self._holding = threading.Lock()
        self._latest = Version()
        self.versions.mkdir(parents=True, exist_ok=True)

    # -- tables

    @cached_property
    def inputs(self) -> ViewInputs:
        """The sources of the view, and where their rows go."""
        return ViewInputs(tuple(self._input(number, name)
                                for number, name in enumerate(self.names)),
                          self.versions, self._batch_offsets_max)

    def _input(self, number: int, name: str) -> SourceInput:
        source = self._sources[name]
        directory = self.folder / "tables" / f"{number}-{quote(name, safe='')}"
        directory.mkdir(parents=True, exist_ok=True)
        if not source.source.is_keyed:
            return SourceInput(source, directory)
        events = event_shape(source.source)
        shape = _create(directory, events, 1 if events.timed else self._buckets)
        return SourceInput(source, directory, shape.buckets)

    @cached_property
    def shapes(self) -> dict[int, TableShape]:
        """The shapes of the tables by key, by the number of their source."""
        return {number: commits.open_shape(each.directory)
                for number, each in enumerate(self.inputs.sources) if each.buckets}

    @cached_property
    def result(self) -> tuple[Path, TableShape] | None:
        """The table of results; None if the view has none."""
        if self._result is None:
            return None
        directory = self.folder / "result"
        return directory, _create(directory, self._result, self._buckets)

    def result_at(self, version: int) -> TableAt:
        """The table of results in a version of the view."""
        assert self.result is not None, self.folder
        directory, shape = self.result
        return TableAt(directory, shape, manifest_at(directory, version))

    def table(self, number: int, version: int) -> TableAt:
        """The table by key of a source, in a version of the view."""
        assert number in self.shapes, (self.folder, number)  # else it is an append-only table
        directory = self.inputs.sources[number].directory
        return TableAt(directory, self.shapes[number], manifest_at(directory, version))

    def row_schema(self, number: int) -> pa.Schema:
        """The columns of a source that the view needs, as they are stored."""
        return schema_of(self.inputs.sources[number].source.source.columns)

    # -- versions

    def latest(self) -> Version:
        """The newest version; each is read from disk once, because it never changes."""
        newest = versions.newest(self.versions)
        if self._latest.number != newest:
            self._latest = versions.latest(self.versions)
        return self._latest

    def between(self, since: int, until: int) -> list[Version]:
        """The versions after `since` up to `until`, oldest first."""
        assert since <= until, (since, until)
        found: list[Version] = []
        number = until
        while number > since:
            found.append(versions.read(self.versions, number))
            assert found[-1].base < number, (found[-1].base, number)
            number = found[-1].base
        return found[::-1]

    def next_version(self, after: int) -> int | None:
        """The number of the version that follows one; None if that is the newest."""
        return next((number for number in versions.numbers(self.versions) if number > after), None)

    def has_seen(self, positions: Sequence[Reached]) -> bool:
        """Has the newest version all messages before these positions?"""
        seen = self.latest().positions
        return len(seen) == len(positions) and all(
            not recreated_topics(mine, wanted.topic_ids) and all(
                mine.positions.get(partition, 0) >= offset
                for partition, offset in wanted.positions.items())
            for mine, wanted in zip(seen, positions, strict=True)
        )

    def hold(self, number: int) -> None:
        """Keep a version, and all after it, for `HOLD_SECONDS`: it is being read."""
        assert number >= NO_VERSION, number
        with self._holding:
            self._held[number] = time.monotonic() + HOLD_SECONDS

    def oldest_needed(self, newest: int, keep: int) -> int:
        """The oldest version that must be kept: `keep` versions, those held, those sinks need."""
        assert keep >= 0, keep
        now = time.monotonic()
        with self._holding:
            self._held = {number: until for number, until in self._held.items() if until > now}
            held = list(self._held)
        wanted = [number for number in (holder() for holder in self.holders) if number is not None]
        oldest = min([newest - keep, *held, *wanted])
        assert oldest <= newest - keep, (oldest, newest, keep)
        return oldest

    # -- errors

    def check(self, version: Version) -> None:
        """Raise OutstandingErrors if a source with ERRORS = 'strict' has errors in a version."""
        for number, each in enumerate(self.inputs.sources):
            source = each.source.source
            if source.errors is ErrorPolicy.STRICT:
                found = list(self._errors(number, version))
                if found:
                    raise OutstandingErrors(f"source {source.name}: " + "; ".join(found))

    def _errors(self, number: int, version: Version) -> Iterator[str]:
        source_input = self.inputs.sources[number]
        if source_input.buckets:
            base = self.table(number, version.number)
            for state in base.manifest.buckets:
                for text in errors(base.directory, base.shape, state):
                    yield text
                    return
        for batch in read_rows(source_input.dead, LETTERS,
                               version.dead.get(number, AppendTable()).files, ["error"]):
            yield from batch.column(0).to_pylist()[:ERRORS_SHOWN_MAX]
            return


def manifest_at(directory: Path, version: int) -> Manifest:
    """A table by key as it was in a version of the view; it need not have changed in that one."""
    known = [each for each in commits.versions(directory) if each <= version]
    found = commits.manifest(directory, known[-1]) if known else Manifest(NO_VERSION, NO_VERSION)
    assert found.version <= version, (directory, found.version, version)
    return found


def _create(directory: Path, events: EventShape, buckets: int) -> TableShape:
    """The shape of a table by key, which is created with a secret if it is not there."""
    return commits.create(directory, events, buckets=buckets, secret=secrets.token_bytes(16))
