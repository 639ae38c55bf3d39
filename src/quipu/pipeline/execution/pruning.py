"""Column pruning: reduces a source to the columns that a query needs.

Values are still decoded whole, because a message is a row only if all of it is good; but columns
that are not needed are dropped right after, and metadata that is not needed is never read.

Processes that only look up offsets load this module, so it must not load formats or envelopes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from quipu.pipeline.envelopes.events import Keeping, event_shape
from quipu.pipeline.reading.options import ReadOptions
from quipu.pipeline.reading.planned_options import planned_options
from quipu.pipeline.source import EnvelopeKind, PlannedSource
from quipu.pipeline.types import Column


class PrunedSource(NamedTuple):
    """A source with some of its columns; `values` are the indexes of its format's columns."""

    source: PlannedSource
    values: tuple[int, ...] | None = None  # None: all


def prune(source: PlannedSource, needed: frozenset[str]) -> PrunedSource:
    """The source with the needed columns, and those of the identity of its rows."""
    if source.is_keyed and event_shape(source).keeping is Keeping.COUNTS:
        return PrunedSource(source)  # the whole row is the row's identity
    source = replace(source, items=tuple(
        item for item in source.items if item.column.name in needed))
    if source.envelope not in (EnvelopeKind.NONE, EnvelopeKind.UPSERT):
        return PrunedSource(source)
    kept = tuple(index for index, column in enumerate(source.value_columns)
                 if column.name in needed or column.name in source.identity)
    if not source.key_columns and not source.items and not kept:
        kept = (_smallest(source.value_columns),)  # a row needs a column
    columns = tuple(source.value_columns[index] for index in kept)
    return PrunedSource(replace(source, value_columns=columns), kept)


def _smallest(columns: Sequence[Column]) -> int:
    widths = [column.type.bit_width if pa.types.is_primitive(column.type) else 1_000
              for column in columns]
    return widths.index(min(widths))


def read_options(source: PlannedSource) -> ReadOptions:
    """The options with which the topics of a planned source are read."""
    return planned_options(source.location, source.start, read_committed=source.read_committed,
                         on_recreated=source.on_recreated, direct_read=source.direct_read)
