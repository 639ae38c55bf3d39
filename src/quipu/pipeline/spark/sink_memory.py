"""Rows on the console, or in memory: for looking at, and for tests.

Neither remembers anything: after a restart they begin again with all that the view holds.
"""

import sys

import pyarrow as pa

from quipu.pipeline.spark.following import Step, with_diff
from quipu.pipeline.spark.relations import DIFF


class ConsoleTarget:
    """A line for each row that came or went."""

    def __init__(self) -> None:
        self._position: int | None = None

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        return self._position

    def write(self, step: Step) -> None:
        """Print a version."""
        for batch in step.batches:
            for row in batch.to_pylist():
                diff = row.pop(DIFF)
                words = "  ".join(f"{name}={value!r}" for name, value in row.items())
                sys.stdout.write(f"{step.version}  {diff:+d}  {words}\n")
        sys.stdout.flush()
        self._position = step.version

    def close(self) -> None:
        """Nothing is held."""


class MemoryTarget:
    """All changes, as Arrow batches."""

    def __init__(self) -> None:
        self._position: int | None = None
        self._batches: list[pa.RecordBatch] = []
        self._schema = pa.schema([])

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        return self._position

    def write(self, step: Step) -> None:
        """Keep a version."""
        self._schema = with_diff(step.schema)
        self._batches += [batch for batch in step.batches if batch.num_rows]
        self._position = step.version

    def table(self) -> pa.Table:
        """What came and what went, in order, with #diff."""
        return pa.Table.from_batches(self._batches, self._schema)

    def close(self) -> None:
        """Nothing is held."""
