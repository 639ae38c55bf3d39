"""A source while it is being planned: the statement, what is known so far, and whom to ask.

A pass takes a draft and gives a draft; it may ask `draft.world`.  Passes are pure otherwise, and
their order is the tuple in `sources.py`, nowhere else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quipu.pipeline.formats.specs import FormatSpec, Text
from quipu.pipeline.plan.world import World
from quipu.pipeline.source import ErrorPolicy, Item, KeyShape, OnRecreated, Place, Start
from quipu.pipeline.sql.statements import CreateConnection, CreateSource, Envelope, Option
from quipu.pipeline.types import Column

Connections = Mapping[str, CreateConnection]


@dataclass(frozen=True)
class Draft:
    """What is known of a source so far."""

    statement: CreateSource
    world: World
    connections: Connections
    envelope: Envelope
    options: Mapping[str, Option] = field(default_factory=dict)  # those that are not Kafka's
    place: Place = field(default_factory=lambda: Place(""))
    partitions: Mapping[str, int] = field(default_factory=dict)
    start: Start = field(default_factory=Start)
    value: FormatSpec = field(default_factory=Text)
    value_columns: tuple[Column, ...] = ()
    key: FormatSpec | None = None
    key_fields: tuple[Column, ...] = ()  # the key format's own columns
    key_columns: tuple[Column, ...] = ()  # as shown
    key_shape: KeyShape = KeyShape.HIDDEN
    identity: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    errors: ErrorPolicy = ErrorPolicy.DEAD_LETTER
    error_column: Column | None = None
    read_committed: bool = True
    on_recreated: OnRecreated = OnRecreated.FAIL


Pass = Callable[[Draft], Draft]
