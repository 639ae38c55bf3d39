"""Events: changes of the rows of a table, as Arrow batches.

An event has the identity of a row and what is done to that row.  Its columns, in this order:

    #identity  binary   canonical bytes of the key (`identity.py`)
    #kind      uint8    action + 16 * slot
    #order     int64    ordered tables: the event time, milliseconds
    #offset    int64    ordered tables: breaks ties of #order
    #diff      int64    tables that count: how many copies of the row to add (or remove)
    #time      int64    timed tables: the time from which the event counts
    #error     string   tables that keep errors: why the row cannot be shown, action ERROR only
    …                   the row: the source's columns, in order; null if there is no row

A later event of a batch overrides an earlier one of the same identity, unless the table is ordered.

    keeping   LATEST   an identity has one row; ROW replaces it, DELETE removes it, ERROR
                       replaces it by an error, which the next ROW or DELETE removes
              COUNTS   an identity is a whole row and has a count; #diff is added to it
    ordered            LATEST only: an event takes effect only if its (#order, #offset) is not
                       below that of the last event of the identity
    timed              events are held back until PROGRESS events, whose identity is JSON
                       (`materialize.py`), have closed their time
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property

import pyarrow as pa

from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, PlannedSource
from quipu.pipeline.types import Column, schema_of

SLOT_UNIT = 16  # the factor of the slot in #kind


class Action(IntEnum):
    """What an event does to the row of its identity."""

    DELETE = 0
    ROW = 1
    ERROR = 2
    PROGRESS = 3


class Slot(IntEnum):
    """What the bytes of an identity encode: equal bytes in two slots are two identities."""

    KEY = 0  # a key that could be decoded, or a whole row
    NO_KEY = 1  # the message has no key; no bytes
    RAW = 2  # a key that could not be decoded; the bytes as they came
    NULL = 3  # a key of one column, which is NULL; no bytes


class Keeping(Enum):
    """What a table stores for an identity: its latest row, or a count of equal rows."""

    LATEST = "latest"
    COUNTS = "counts"


IDENTITY = Column("#identity", pa.binary(), nullable=False)
KIND = Column("#kind", pa.uint8(), nullable=False)
ORDER = Column("#order", pa.int64(), nullable=False)
OFFSET = Column("#offset", pa.int64(), nullable=False)
DIFF = Column("#diff", pa.int64(), nullable=False)
TIME = Column("#time", pa.int64(), nullable=False)
ERROR = Column("#error", pa.string())


@dataclass(frozen=True)
class EventShape:
    """The columns of a source's events: those before the row, and those of the row."""

    keeping: Keeping
    row: pa.Schema
    ordered: bool = False
    timed: bool = False
    errors: bool = False

    def __post_init__(self) -> None:
        if self.keeping is Keeping.COUNTS and (self.ordered or self.errors):
            raise ValueError("a table that counts rows has neither order nor errors by key")

    @cached_property
    def front(self) -> tuple[Column, ...]:
        """The columns before the row."""
        columns = [IDENTITY, KIND]
        if self.ordered:
            columns += [ORDER, OFFSET]
        if self.keeping is Keeping.COUNTS or self.timed:
            columns.append(DIFF)
        if self.timed:
            columns.append(TIME)
        if self.errors:
            columns.append(ERROR)
        return tuple(columns)

    def place(self, column: Column) -> int:
        """The index of a column before the row; by name it could be a column of the row."""
        return self.front.index(column)

    @cached_property
    def stored_start(self) -> int:
        """The index of the first column that a table stores: the error, if any, then the row."""
        return len(self.front) - self.errors

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a batch of events."""
        return pa.schema([*schema_of(self.front), *(pa.field(field.name, field.type)
                                                    for field in self.row)])


def event_shape(source: PlannedSource) -> EventShape:
    """The events of a source whose envelope is not NONE."""
    assert source.is_keyed, source.name
    timed = source.envelope is EnvelopeKind.MATERIALIZE
    # a message with updates of many rows has no key that could identify them
    keyed = bool(source.identity) or (source.key is not None and not timed)
    upsert = source.envelope in (EnvelopeKind.UPSERT, EnvelopeKind.DEBEZIUM_UPSERT)
    latest = upsert or keyed
    return EventShape(
        keeping=Keeping.LATEST if latest else Keeping.COUNTS,
        row=schema_of(source.columns),
        ordered=source.order_by is not None and latest and not timed,
        timed=timed,
        errors=source.errors is ErrorPolicy.STRICT and latest,
    )
