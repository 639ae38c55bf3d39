"""`Draft`: a source while it is planned: the statement, and what the passes have found.

A pass takes a draft and returns a draft; it may call `draft.facts`.  Passes are pure otherwise, and
their order is only in the tuple in `sources.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quipu.pipeline.formats.specs import FormatSpec, Text
from quipu.pipeline.plan.external_facts import ExternalFacts
from quipu.pipeline.source import (
    DirectRead,
    ErrorPolicy,
    KeyShape,
    MetadataItem,
    OnRecreated,
    Start,
    TopicLocation,
)
from quipu.pipeline.sql.statements import CreateConnection, CreateSource, EnvelopeClause, Option
from quipu.pipeline.types import Column

Connections = Mapping[str, CreateConnection]


@dataclass(frozen=True)
class Draft:
    """A source while it is planned."""

    statement: CreateSource
    facts: ExternalFacts
    connections: Connections
    envelope: EnvelopeClause
    options: Mapping[str, Option] = field(default_factory=dict)  # those that are not Kafka's
    location: TopicLocation = field(default_factory=lambda: TopicLocation(""))
    partitions: Mapping[str, int] = field(default_factory=dict)
    start: Start = field(default_factory=Start)
    value: FormatSpec = field(default_factory=Text)
    value_columns: tuple[Column, ...] = ()
    key: FormatSpec | None = None
    key_fields: tuple[Column, ...] = ()  # the key format's own columns
    key_columns: tuple[Column, ...] = ()  # the columns that the source shows
    key_shape: KeyShape = KeyShape.HIDDEN
    identity: tuple[str, ...] = ()
    items: tuple[MetadataItem, ...] = ()
    errors: ErrorPolicy = ErrorPolicy.DEAD_LETTER
    error_column: Column | None = None
    read_committed: bool = True
    on_recreated: OnRecreated = OnRecreated.FAIL
    direct_read: DirectRead = DirectRead.AUTO


Pass = Callable[[Draft], Draft]
