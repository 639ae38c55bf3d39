"""What every envelope does: messages of one partition in; rows or events, and dead letters, out.

    envelope = make_envelope(source)              # make.py
    envelope.wanted                               # which columns of records it needs (records room)
    found = envelope.open(messages)
    found.batch                                   # NONE: rows; else events (`events.py`)
    found.letters                                 # dead letters (`dead_letters.py`)

One bad record never stops a source.  What becomes of it, by the source's policy:

    DEAD_LETTER   a dead letter; nothing else happens, so a key keeps the row that it had
    INLINE        a row with the error in a column; where no key is known, a dead letter
    STRICT        kept by key in the table until the next message for that key: whoever reads the
                  table refuses while `Manifest.errors` is not 0; where there is no table, or no
                  key, a dead letter, and whoever reads the source refuses (`refuse`)
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import pyarrow as pa

from quipu.model.errors import QuipuError
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.records.columns import Wanted
from quipu.pipeline.source import ErrorPolicy, Source


class Messages(NamedTuple):
    """Some messages of one partition, in order: their records and what keys and values decode to.

    `records` has at least the columns that the envelope wants.  `reread` gives the same records
    with all columns; it is asked only if a record is bad and a column is missing, so that dead
    letters cost nothing while there are none.  Without it dead letters have what there is.
    """

    topic: str
    partition: int
    records: pa.RecordBatch
    value: Decoded
    key: Decoded | None = None  # None: the source knows no format of keys
    reread: Callable[[], pa.RecordBatch] | None = None

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.value.errors)


class Opened(NamedTuple):
    """What messages hold."""

    batch: pa.RecordBatch
    letters: pa.RecordBatch


class Envelope(Protocol):
    """A way to wrap rows in messages."""

    wanted: Wanted

    def open(self, messages: Messages) -> Opened:
        """See above; nothing in a message can make this fail."""
        ...


class OutstandingErrors(QuipuError):
    """A source that must not be read, because records of it are bad; the message has the first."""


def refuse(source: Source, letters: pa.RecordBatch) -> None:
    """With the strict policy, raise if there are dead letters."""
    if source.errors is ErrorPolicy.STRICT and letters.num_rows:
        raise OutstandingErrors(
            f"source {source.name}: {letters.column('error')[0].as_py()} "
            f"(topic {letters.column('topic')[0].as_py()}, "
            f"partition {letters.column('partition')[0].as_py()}, "
            f"offset {letters.column('offset')[0].as_py()})")
