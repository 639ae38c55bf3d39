"""A planned source: everything that reading, decoding and folding need, and nothing to decide.

`plan` makes one from a statement; it is plain data, so it travels to executors and into the
catalog.  Names of columns are final here, clashes are gone, the schema registry was asked.

`key_columns` and `value_columns` are the formats' columns in the formats' order under the names
that the source shows.  Envelopes that wrap the row have a value of their own (`specs.Debezium`,
`specs.Materialize`), whose `row` has the row's own names in the same order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from quipu.pipeline.formats.specs import FormatSpec
from quipu.pipeline.types import Column


class EnvelopeKind(Enum):
    """How messages become rows."""

    NONE = "none"
    UPSERT = "upsert"
    DEBEZIUM_UPSERT = "debezium upsert"
    DEBEZIUM = "debezium"
    MATERIALIZE = "materialize"


class ErrorPolicy(Enum):
    """What becomes of a record that cannot be decoded."""

    DEAD_LETTER = "dead letter"  # the default: kept aside with its provenance; the rest goes on
    INLINE = "inline"  # a row with the error in a column of its own
    STRICT = "strict"  # reading the source fails while the error is outstanding


class OnRecreated(Enum):
    """What becomes of a source whose topic was deleted and created anew."""

    FAIL = "fail"  # the default: it stops, with an error
    EARLIEST = "earliest"  # the new topic is read from its first record


class ItemKind(Enum):
    """What INCLUDE can ask for, besides KEY."""

    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestamp type"  # text: CreateTime or LogAppendTime
    OFFSET = "offset"
    PARTITION = "partition"
    TOPIC = "topic"
    HEADERS = "headers"
    HEADER = "header"
    DEBEZIUM_OP = "debezium op"
    DEBEZIUM_TIMESTAMP = "debezium timestamp"
    DEBEZIUM_TABLE = "debezium table"


class KeyShape(Enum):
    """How INCLUDE KEY shows the key."""

    HIDDEN = "hidden"  # known to the envelope, no column
    FLAT = "flat"  # a column per field
    RECORD = "record"  # one column that holds all fields: INCLUDE KEY AS name, several fields


@dataclass(frozen=True)
class Item:
    """One metadata column."""

    kind: ItemKind
    column: Column
    header: str = ""  # of HEADER: which one


@dataclass(frozen=True)
class Place:
    """Where the topics are: a Kafka cluster and which of its topics."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # a regular expression, instead of topics
    options: Mapping[str, str] = field(default_factory=dict)  # Kafka client settings, no prefix


@dataclass(frozen=True)
class Start:
    """Where reading begins, by partition number; partitions not named begin at the earliest.

    Offsets are of the topics that there were when the source was created: `topic_ids` says which.
    Ids are missing where brokers tell none, and in catalogs of Quipu 0.3.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # topic: {partition: o}
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """See above.  `columns` is the order of I6: key, inline error, value, metadata."""

    name: str
    place: Place
    start: Start
    value: FormatSpec
    value_columns: tuple[Column, ...]  # as the source shows them
    key: FormatSpec | None = None
    key_columns: tuple[Column, ...] = ()  # as shown; with RECORD one struct, with HIDDEN none
    key_shape: KeyShape = KeyShape.HIDDEN
    identity: tuple[str, ...] = ()  # PRIMARY KEY: value columns that tell rows apart, if no `key`
    envelope: EnvelopeKind = EnvelopeKind.NONE
    order_by: ItemKind | None = None  # TIMESTAMP: by event time, the offset breaks ties
    items: tuple[Item, ...] = ()
    errors: ErrorPolicy = ErrorPolicy.DEAD_LETTER
    error_column: Column | None = None  # with INLINE
    read_committed: bool = True
    on_recreated: OnRecreated = OnRecreated.FAIL

    @property
    def columns(self) -> tuple[Column, ...]:
        """The source's columns, in order."""
        error = (self.error_column,) if self.error_column is not None else ()
        return (*self.key_columns, *error, *self.value_columns,
                *(item.column for item in self.items))

    @property
    def is_keyed(self) -> bool:
        """Does a later message take back an earlier one?"""
        return self.envelope is not EnvelopeKind.NONE
