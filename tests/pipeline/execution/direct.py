"""Sources read without Spark: the same reading, decoding and folding, in this process.

    plan = Planner(connections).source("CREATE SOURCE …")
    read(plan)       # rows, and where the dead letters are from

A query on Spark takes long; thousands of sources are read this way.  That both tell the same is
for tests to show.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from quipu.client.fetch import raise_loss
from quipu.client.shared import shared
from quipu.pipeline.envelopes.events import event_shape
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.execution.pruning import PrunedSource, read_options
from quipu.pipeline.execution.source_reader import OpenedMessages, source_reader_of
from quipu.pipeline.live_facts import LiveFacts
from quipu.pipeline.plan.external_facts import RecordingFacts, RegistrySchema
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.reading.stream import snapshot
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.statements import CreateConnection, CreateSource
from quipu.pipeline.tables.contract import BucketState, TableShape
from quipu.pipeline.tables.reading import rows
from quipu.pipeline.tables.store import files_directory, merge_bucket

Row = tuple[Any, ...]
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # nobody keeps the files


class Read(NamedTuple):
    """What a source holds."""

    rows: list[Row]
    letters: list[tuple[int, int]]  # partition and offset


class Planner:
    """Plans statements; asks the outside once for each fact."""

    def __init__(self, connections: Sequence[str]) -> None:
        self._connections: dict[str, CreateConnection] = {}
        for text in connections:
            statement = parse_one(text)
            assert isinstance(statement, CreateConnection)
            self._connections[statement.name.text] = statement
        self._facts = _Frugal(LiveFacts())

    def source(self, text: str) -> PlannedSource:
        statement = parse_one(text)
        assert isinstance(statement, CreateSource)
        return plan_source(statement, text, self._facts, self._connections)


class _Frugal(RecordingFacts):
    """Live facts, each topic and each schema asked for once."""

    def __init__(self, facts: LiveFacts) -> None:
        super().__init__(facts)
        self._partitions: dict[Any, Mapping[str, int]] = {}
        self._schemas: dict[Any, RegistrySchema | None] = {}

    def partitions(self, location: Any) -> Mapping[str, int]:
        if location.topics not in self._partitions:
            self._partitions[location.topics] = super().partitions(location)
        return self._partitions[location.topics]

    def schema(self, registry: Any, subject: str, schema_id: int | None) -> RegistrySchema | None:
        if (subject, schema_id) not in self._schemas:
            self._schemas[subject, schema_id] = super().schema(registry, subject, schema_id)
        return self._schemas[subject, schema_id]


def read(source: PlannedSource) -> Read:
    """The rows of a source as its topics are now."""
    options = read_options(source)
    reader = source_reader_of(PrunedSource(source))
    found = [each for task in snapshot(shared(options.client), options, 1, raise_loss)
             for each in reader.read(task)]
    letters = [place for each in found for place in _rows([each.opened.letters.select(
        ["partition", "offset"])])]
    if not source.is_keyed:
        return Read(_rows([each.opened.batch for each in found]), letters)
    with tempfile.TemporaryDirectory(prefix="quipu-", dir=MEMORY) as folder:
        return Read(_folded(Path(folder), source, found), letters)


def _folded(directory: Path, source: PlannedSource, found: Sequence[OpenedMessages]) -> list[Row]:
    shape = TableShape(event_shape(source), 1, bytes(16))
    packer = Packer(shape.events, buckets=1)
    for each in found:
        packer.add(each.messages, each.opened.batch)
    files_directory(directory).mkdir()
    state = merge_bucket(directory, shape, BucketState(0),
                         [parcel.data for parcel in packer.parcels()], 0)
    return _rows(list(rows(directory, shape, state)))


def _rows(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
