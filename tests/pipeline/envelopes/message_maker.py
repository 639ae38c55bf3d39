"""Messages for tests: plain bytes through the real formats, with only the columns asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import EVERYTHING
from quipu.pipeline.envelopes.factory import make_envelope
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.specs import FormatSpec, Text
from quipu.pipeline.plan.include import ITEM_COLUMNS
from quipu.pipeline.plan.policies import ERROR
from quipu.pipeline.source import (
    EnvelopeKind,
    ErrorPolicy,
    KeyShape,
    MetadataItem,
    MetadataKind,
    PlannedSource,
    Start,
    TopicLocation,
)
from quipu.pipeline.types import Column

Pair = tuple[bytes | None, bytes | None]
Headers = list[tuple[str, bytes | None]]


def item(kind: MetadataKind, name: str = "", header: str = "", type_: Any = None) -> MetadataItem:
    """A metadata column."""
    column = ITEM_COLUMNS[kind]
    named = column._replace(name=name or column.name, type=type_ or column.type)
    return MetadataItem(kind, named, header)


def source_of(envelope: EnvelopeKind, **changes: Any) -> PlannedSource:
    """KEY FORMAT TEXT VALUE FORMAT TEXT, the key shown, unless told otherwise."""
    given: dict[str, Any] = {"key": Text("key"), "value": Text(), "key_shape": KeyShape.FLAT,
                             **changes}
    value = make_format(given["value"])
    source = PlannedSource(
        name="s", location=TopicLocation("localhost:9092", ("t",)), start=Start(),
        envelope=envelope, **{"value_columns": value.columns, **given})
    if source.key is not None and source.key_shape is KeyShape.FLAT and not source.key_columns:
        source = replace(source, key_columns=make_format(source.key).columns)
    if source.errors is ErrorPolicy.INLINE:
        source = replace(source, error_column=Column("error", ERROR))
    return source


def messages_of(
    source: PlannedSource, pairs: Sequence[Pair], *, first: int = 0, partition: int = 0,
    times_ms: Sequence[int | None] = (), headers: Sequence[Headers] = (),
) -> Messages:
    """Records of a partition, decoded as the source says; other columns are read on demand."""
    count = len(pairs)
    everything = pa.RecordBatch.from_arrays([
        pa.array([key for key, _ in pairs], pa.binary()),
        pa.array([value for _, value in pairs], pa.binary()),
        pa.array(range(first, first + count), pa.int64()),
        pa.array([None if time is None else time * 1000
                  for time in (times_ms or [1000] * count)], pa.int64()
                 ).cast(EVERYTHING.schema.field("timestamp").type),
        pa.array([0] * count, pa.int32()),
        pa.array([[{"key": name, "value": data} for name, data in each]
                  for each in (headers or [[]] * count)],
                 EVERYTHING.schema.field("headers").type),
    ], schema=EVERYTHING.schema)
    wanted = make_envelope(source).wanted
    return Messages(
        "t", partition, everything.select(wanted.schema.names),
        make_format(source.value).decode(everything.column("value")),
        _decoded_key(source.key, everything.column("key")), lambda: everything)


def _decoded_key(spec: FormatSpec | None, data: pa.Array) -> Any:
    return None if spec is None else make_format(spec).decode(data)


def opened(source: PlannedSource, pairs: Sequence[Pair], **how: Any) -> Opened:
    """What the source's envelope finds in messages."""
    found = make_envelope(source).open(messages_of(source, pairs, **how))
    found.batch.validate(full=True)
    found.letters.validate(full=True)
    return found


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
