"""The protocol of envelopes: messages of one partition in; rows or events, and dead letters, out.

    envelope = make_envelope(source)              # factory.py
    envelope.wanted                               # which columns of records it needs (records room)
    found = envelope.open(messages)
    found.batch                                   # NONE: rows; else events (`events.py`)
    found.letters                                 # dead letters (`dead_letters.py`)

One bad record never stops a source.  The source's error policy says what is done with it:

    DEAD_LETTER   it becomes a dead letter, and changes no row
    INLINE        it becomes a row with the error in a column; without a key, a dead letter
    STRICT        its error is stored in the table under its key until the next message of that key,
                  and queries of the table fail while `Manifest.errors` is not 0; without a table
                  or a key it becomes a dead letter, and queries of the source fail (`refuse`)
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import pyarrow as pa

from quipu.model.errors import QuipuError
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.records.columns import WantedColumns
from quipu.pipeline.source import ErrorPolicy, PlannedSource


class Messages(NamedTuple):
    """Some messages of one partition, in order: their records, and their decoded keys and values.

    `records` has at least the columns that the envelope wants.  `reread` returns the same records
    with all columns; it is called only for a bad record with a missing column, so that dead
    letters cost nothing while there are none.  Without it dead letters lack the missing columns.
    """

    topic: str
    partition: int
    records: pa.RecordBatch
    value: Decoded
    key: Decoded | None = None  # None: the source has no KEY FORMAT
    reread: Callable[[], pa.RecordBatch] | None = None

    @property
    def size(self) -> int:
        """The number of messages."""
        return len(self.value.errors)


class Opened(NamedTuple):
    """The rows or events of messages, and the dead letters."""

    batch: pa.RecordBatch
    letters: pa.RecordBatch


class Envelope(Protocol):
    """Turns messages into rows or events, by the ENVELOPE of a source."""

    wanted: WantedColumns

    def open(self, messages: Messages) -> Opened:
        """The rows or events of messages, and the dead letters; no message can make this fail."""
        ...


class OutstandingErrors(QuipuError):
    """A STRICT source cannot be read, because it has bad records; the message shows the first."""


def refuse(source: PlannedSource, letters: pa.RecordBatch) -> None:
    """Raise OutstandingErrors if the source is STRICT and there are dead letters."""
    if source.errors is ErrorPolicy.STRICT and letters.num_rows:
        raise OutstandingErrors(
            f"source {source.name}: {letters.column('error')[0].as_py()} "
            f"(topic {letters.column('topic')[0].as_py()}, "
            f"partition {letters.column('partition')[0].as_py()}, "
            f"offset {letters.column('offset')[0].as_py()})")
