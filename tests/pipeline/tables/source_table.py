"""A source and its table: messages in, rows out, through envelope, parcels, merge and manifest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from quipu.pipeline.envelopes.events import event_shape
from quipu.pipeline.envelopes.factory import make_envelope
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.tables import commits, reading
from quipu.pipeline.tables.in_memory import fold_in_memory
from quipu.pipeline.tables.store import merge_bucket
from tests.pipeline.envelopes.message_maker import Pair, messages_of, rows_of


class SourceTable:
    """What a reader of a keyed source sees, batch by batch."""

    def __init__(self, directory: Path, source: PlannedSource, *, buckets: int = 3) -> None:
        self.source = source
        self.directory = directory
        shape = event_shape(source)
        self.shape = commits.create(directory, shape, secret=bytes(16),
                                    buckets=1 if shape.timed else buckets)
        self._offset = 0
        self._parcels: dict[int, list[bytes]] = {}
        self.letters: list[dict[str, Any]] = []

    def feed(self, *pairs: Pair, **how: Any) -> None:
        """One batch."""
        messages = messages_of(self.source, pairs, first=self._offset, **how)
        self._offset += len(pairs)
        found = make_envelope(self.source).open(messages)
        self.letters += found.letters.to_pylist()
        packer = Packer(self.shape.events, buckets=self.shape.buckets)
        packer.add(messages, found.batch)
        version = commits.latest(self.directory).version + 1
        base = commits.begin(self.directory, version)
        assert base is not None
        parcels = list(packer.parcels())
        for bucket, data in parcels:
            self._parcels.setdefault(bucket, []).append(data)
        states = [merge_bucket(self.directory, self.shape, base.bucket(bucket), [data], version)
                  for bucket, data in parcels]
        commits.commit(self.directory, base, version, states)

    @property
    def now(self) -> commits.Manifest:
        return commits.latest(self.directory)

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, sorted."""
        return sorted((row for bucket in range(self.shape.buckets)
                       for batch in reading.rows(self.directory, self.shape,
                                                 self.now.bucket(bucket))
                       for row in rows_of(batch)), key=repr)

    def snapshot(self) -> list[tuple[Any, ...]]:
        """All rows, sorted, of all batches as one, with no table."""
        return sorted((row for parcels in self._parcels.values()
                       for batch in fold_in_memory(self.shape, parcels).rows()
                       for row in rows_of(batch)), key=repr)

    def errors(self) -> list[str]:
        return sorted(text for bucket in range(self.shape.buckets) for text in reading.errors(
            self.directory, self.shape, self.now.bucket(bucket)))

    def changes(self) -> list[tuple[Any, ...]]:
        """What the last batch changed, sorted; the difference comes last."""
        batches: Sequence[pa.RecordBatch] = [
            batch for states in reading.bucket_histories(
                self.directory, self.now.base, self.now.version)
            for batch in reading.changes(self.directory, self.shape, states)]
        return sorted((row for batch in batches for row in rows_of(batch)), key=repr)
