"""Tables for tests: events out of plain tuples, a driver, and a dumb model to compare with."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.events import SLOT_UNIT, Action, EventShape, Keeping, Slot
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.tables import cleaning, commits, reading
from quipu.pipeline.tables.commits import Manifest
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.store import merge_bucket

ROW = pa.schema([("key", pa.string()), ("value", pa.int64())])
LATEST = EventShape(Keeping.LATEST, ROW)
STRICT = EventShape(Keeping.LATEST, ROW, errors=True)
ORDERED = EventShape(Keeping.LATEST, ROW, ordered=True)
COUNTS = EventShape(Keeping.COUNTS, ROW)
SECRET = bytes(range(16))


class Event(NamedTuple):
    """One event; what a kind of table does not need is not used."""

    key: str
    action: Action = Action.ROW
    value: int = 0
    order: int = 0
    offset: int = 0
    diff: int = 1
    slot: Slot = Slot.KEY

    @property
    def shown(self) -> str:
        """The key as the row has it: other slots are other rows."""
        return self.key * (1 + self.slot)


def events_batch(shape: EventShape, events: Sequence[Event]) -> pa.RecordBatch:
    """Events as columns; tables that count have (key, value) as identity."""
    counts = shape.keeping is Keeping.COUNTS
    shown = [counts or each.action is Action.ROW for each in events]
    columns = {
        "#identity": [(f"{each.key}/{each.value}" if counts else each.key).encode()
                      for each in events],
        "#kind": [each.action + SLOT_UNIT * each.slot * (not counts) for each in events],
        "#order": [each.order for each in events], "#offset": [each.offset for each in events],
        "#diff": [each.diff for each in events], "#time": [0] * len(events),
        "#error": [f"bad {each.value}" if each.action is Action.ERROR else None
                   for each in events],
        "key": [(each.key if counts else each.shown) if show else None
                for each, show in zip(events, shown, strict=True)],
        "value": [each.value if show else None for each, show in zip(events, shown, strict=True)],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in shape.schema],
        schema=shape.schema)


def messages_at(offset: int, *, partition: int = 0) -> Messages:
    """Just enough of messages for a packer: where they are from."""
    nothing = Decoded([], pa.nulls(1, pa.string()), pa.array([False]))
    records = pa.record_batch({"offset": pa.array([offset], pa.int64())})
    return Messages("topic", partition, records, nothing)


class Table:
    """A table and its driver."""

    def __init__(self, directory: Path, events: EventShape, *, buckets: int = 2) -> None:
        self.directory = directory
        self.shape: TableShape = commits.create(
            directory, events, buckets=buckets, secret=SECRET)

    def merge(self, version: int, chunks: Iterable[Sequence[Event]]) -> Manifest:
        """One batch: chunks of events, each from further on in the partition."""
        parcels: dict[int, list[bytes]] = {}
        for index, chunk in enumerate(chunks):
            packer = Packer(self.shape.events, buckets=self.shape.buckets)
            packer.add(messages_at(index), events_batch(self.shape.events, chunk))
            for bucket, data in packer.parcels():
                parcels.setdefault(bucket, []).insert(0, data)  # not in order: that is restored
        base = commits.begin(self.directory, version)
        if base is None:
            return commits.latest(self.directory)
        states = [merge_bucket(self.directory, self.shape, base.bucket(bucket), data, version)
                  for bucket, data in parcels.items()]
        return commits.commit(self.directory, base, version, states)

    def rows(self, version: int) -> Counter[tuple[str, int]]:
        """Rows with how often they are there."""
        found = commits.manifest(self.directory, version)
        rows = [(row["key"], row["value"]) for bucket in range(self.shape.buckets)
                for batch in reading.rows(self.directory, self.shape, found.bucket(bucket))
                for row in batch.to_pylist()]
        assert len(rows) == found.rows
        return Counter(rows)

    def changes(self, since: int, until: int) -> Counter[tuple[str, int]]:
        """Rows with by how much they became more; each row is told about once."""
        found: Counter[tuple[str, int]] = Counter()
        for states in reading.bucket_histories(self.directory, since, until):
            for batch in reading.changes(self.directory, self.shape, states):
                for row in batch.to_pylist():
                    assert (row["key"], row["value"]) not in found, row
                    assert row["#diff"] != 0
                    found[row["key"], row["value"]] = row["#diff"]
        return found

    def errors(self, version: int) -> list[str]:
        """Outstanding errors."""
        found = commits.manifest(self.directory, version)
        texts = [text for bucket in range(self.shape.buckets)
                 for text in reading.errors(self.directory, self.shape, found.bucket(bucket))]
        assert len(texts) == found.errors
        return sorted(texts)

    def clean(self, keep: int) -> int:
        return cleaning.clean(self.directory, keep=keep)

    def files(self) -> set[str]:
        return {path.name for path in (self.directory / "files").iterdir()}


class Model:
    """What a table should hold, kept in dicts, an event at a time."""

    def __init__(self, shape: EventShape) -> None:
        self._shape = shape
        self._state: dict[tuple[Slot, str], Event] = {}
        self._counts: Counter[tuple[str, int]] = Counter()

    def apply(self, event: Event) -> None:
        if self._shape.keeping is Keeping.COUNTS:
            self._counts[event.key, event.value] += event.diff
            return
        known = self._state.get((event.slot, event.key))
        if self._shape.ordered and known is not None and (
            (event.order, event.offset) < (known.order, known.offset)
        ):
            return
        self._state[event.slot, event.key] = event

    def rows(self) -> Counter[tuple[str, int]]:
        seen = Counter((event.shown, event.value) for event in self._state.values()
                       if event.action is Action.ROW)
        return seen + +self._counts  # a Counter's plus drops what is not above zero

    def errors(self) -> list[str]:
        return sorted(f"bad {event.value}" for event in self._state.values()
                      if event.action is Action.ERROR)


def difference(
    before: Counter[tuple[str, int]], after: Counter[tuple[str, int]],
) -> Counter[tuple[str, int]]:
    """By how much each row became more; rows that stay are not told."""
    found = Counter(after)
    found.subtract(before)
    return Counter({row: count for row, count in found.items() if count})
