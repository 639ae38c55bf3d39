"""The console and memory as targets of sinks, for trying out and for tests.

Neither has a checkpoint: after a restart they start again with the whole view.
"""

import sys

import pyarrow as pa

from quipu.pipeline.views.changes import DIFF, ViewChange, with_diff


class ConsoleTarget:
    """Prints a line for each row that was added or removed."""

    def __init__(self) -> None:
        self._position: int | None = None

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        return self._position

    def write(self, change: ViewChange) -> None:
        """Print the rows of a version."""
        for batch in change.batches:
            for row in batch.to_pylist():
                diff = row.pop(DIFF)
                text = "  ".join(f"{name}={value!r}" for name, value in row.items())
                sys.stdout.write(f"{change.version}  {diff:+d}  {text}\n")
        sys.stdout.flush()
        self._position = change.version

    def close(self) -> None:
        """Nothing is held."""


class MemoryTarget:
    """Keeps all changes as Arrow batches."""

    def __init__(self) -> None:
        self._position: int | None = None
        self._batches: list[pa.RecordBatch] = []
        self._schema = pa.schema([])

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        return self._position

    def write(self, change: ViewChange) -> None:
        """Keep the rows of a version."""
        self._schema = with_diff(change.schema)
        self._batches += [batch for batch in change.batches if batch.num_rows]
        self._position = change.version

    def table(self) -> pa.Table:
        """All rows that were added and removed, in order, with #diff."""
        return pa.Table.from_batches(self._batches, self._schema)

    def close(self) -> None:
        """Nothing is held."""
