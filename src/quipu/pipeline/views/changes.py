"""What changes from one version of a view to the next, as SUBSCRIBE shows it and sinks write it.

The batches of a `ViewChange` have the columns of the view and, after them, `#diff`: by how many the
number of copies of the row grew (or, below zero, shrank).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

DIFF: Final = "#diff"


class ViewChange(NamedTuple):
    """The rows that differ between two versions; of a snapshot, all rows of its version."""

    version: int
    is_snapshot: bool
    schema: pa.Schema  # of the rows, without #diff
    batches: Iterator[pa.RecordBatch]


def with_diff(schema: pa.Schema) -> pa.Schema:
    """The columns of a change's batches: those of the view, then `#diff`."""
    return schema.append(pa.field(DIFF, pa.int64(), nullable=False))
