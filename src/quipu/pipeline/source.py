"""A planned source: what reading, decoding and merging need, with nothing left to decide.

`plan` makes one from a statement.  It is plain data, so it can be sent to executors.  The names of
its columns are final and unique, and schemas of a registry are resolved.

`key_columns` and `value_columns` are the formats' columns in the formats' order under the names
of the source's columns.  For envelopes that wrap the row, the value's format is `specs.Debezium` or
`specs.Materialize`, whose `row` has the names in the message, in the same order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from quipu.pipeline.formats.specs import FormatSpec
from quipu.pipeline.types import Column


class EnvelopeKind(Enum):
    """The ENVELOPE of a source: how messages become rows."""

    NONE = "none"
    UPSERT = "upsert"
    DEBEZIUM_UPSERT = "debezium upsert"
    DEBEZIUM = "debezium"
    MATERIALIZE = "materialize"


class ErrorPolicy(Enum):
    """What is done with a record that cannot be decoded."""

    DEAD_LETTER = "dead letter"  # the default: stored as a dead letter; other records go on
    INLINE = "inline"  # a row with the error in a column of its own
    STRICT = "strict"  # reading the source fails while the error is outstanding


class OnRecreated(Enum):
    """What is done if the topic of a source was deleted and created again."""

    FAIL = "fail"  # the default: the source stops with an error
    EARLIEST = "earliest"  # the new topic is read from its first record


class DirectRead(Enum):
    """Whether executors read old records from object storage themselves, past the brokers."""

    AUTO = "auto"  # the default: if they can, else through brokers
    NEVER = "never"
    ALWAYS = "always"  # it is an error if they cannot


class MetadataKind(Enum):
    """The metadata that INCLUDE can name, besides KEY."""

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

    HIDDEN = "hidden"  # used by the envelope, but no column
    FLAT = "flat"  # a column per field
    RECORD = "record"  # one column that holds all fields: INCLUDE KEY AS name, several fields


@dataclass(frozen=True)
class MetadataItem:
    """One metadata column."""

    kind: MetadataKind
    column: Column
    header: str = ""  # the name of the header, for HEADER


@dataclass(frozen=True)
class TopicLocation:
    """A Kafka cluster, and the topics of a source in it."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # a regular expression, instead of topics
    options: Mapping[str, str] = field(default_factory=dict)  # Kafka client settings, no prefix


@dataclass(frozen=True)
class Start:
    """The offsets at which reading begins; partitions not named begin at the earliest.

    The offsets belong to the topics that existed when the source was created, with the ids in
    `topic_ids`.  An id is missing if the broker sends none, and in catalogs of Quipu 0.3.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # topic: {partition: o}
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedSource:
    """A source with nothing left to decide; `columns` are key, inline error, value, metadata."""

    name: str
    location: TopicLocation
    start: Start
    value: FormatSpec
    value_columns: tuple[Column, ...]  # under the names that the source shows
    key: FormatSpec | None = None
    key_columns: tuple[Column, ...] = ()  # as shown; with RECORD one struct, with HIDDEN none
    key_shape: KeyShape = KeyShape.HIDDEN
    identity: tuple[str, ...] = ()  # PRIMARY KEY: value columns that identify a row without `key`
    envelope: EnvelopeKind = EnvelopeKind.NONE
    order_by: MetadataKind | None = None  # TIMESTAMP: by event time, the offset breaks ties
    items: tuple[MetadataItem, ...] = ()
    errors: ErrorPolicy = ErrorPolicy.DEAD_LETTER
    error_column: Column | None = None  # with INLINE
    read_committed: bool = True
    on_recreated: OnRecreated = OnRecreated.FAIL
    direct_read: DirectRead = DirectRead.AUTO

    @property
    def columns(self) -> tuple[Column, ...]:
        """The source's columns, in order."""
        error = (self.error_column,) if self.error_column is not None else ()
        return (*self.key_columns, *error, *self.value_columns,
                *(item.column for item in self.items))

    @property
    def is_keyed(self) -> bool:
        """Can a later message replace or delete the row of an earlier one?"""
        return self.envelope is not EnvelopeKind.NONE
