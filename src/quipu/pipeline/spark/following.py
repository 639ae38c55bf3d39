"""Following a table of rows: what it holds, and then what changes, version by version.

`Step` is what SUBSCRIBE shows and sinks write.  Its batches have the columns of the view, and after
them `#diff`: how many copies of the row there are more (or, below zero, less) than before.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

DIFF = "#diff"


class Step(NamedTuple):
    """From one version to another; of a snapshot, from nothing."""

    version: int
    is_snapshot: bool
    schema: pa.Schema  # of the rows, without #diff
    batches: Iterator[pa.RecordBatch]


def with_diff(schema: pa.Schema) -> pa.Schema:
    """The columns of a step's batches."""
    return schema.append(pa.field(DIFF, pa.int64(), nullable=False))
