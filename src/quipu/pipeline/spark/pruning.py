"""A source as somebody sees it who needs few of its columns.

Values are still decoded whole, because a message is a row only if all of it is good; but columns
that nobody needs are dropped there and then, and metadata that nobody needs is never read at all.

This module is loaded by processes that only ask for offsets: it loads no format and no envelope.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from quipu.pipeline.envelopes.events import Keeping, event_shape
from quipu.pipeline.reading.options import ReadOptions
from quipu.pipeline.reading.place import place_options
from quipu.pipeline.source import EnvelopeKind, Source
from quipu.pipeline.types import Column


class Pruned(NamedTuple):
    """A source with some of its columns: `values` says which of the format's columns those are."""

    source: Source
    values: tuple[int, ...] | None = None  # None: all


def pruned(source: Source, needed: frozenset[str]) -> Pruned:
    """The source for somebody who needs these columns only."""
    if source.is_keyed and event_shape(source).keeping is Keeping.COUNTS:
        return Pruned(source)  # the whole row is the row's identity
    source = replace(source, items=tuple(
        item for item in source.items if item.column.name in needed))
    if source.envelope not in (EnvelopeKind.NONE, EnvelopeKind.UPSERT):
        return Pruned(source)
    kept = tuple(index for index, column in enumerate(source.value_columns)
                 if column.name in needed or column.name in source.identity)
    if not source.key_columns and not source.items and not kept:
        kept = (_smallest(source.value_columns),)  # so that there is a row
    columns = tuple(source.value_columns[index] for index in kept)
    return Pruned(replace(source, value_columns=columns), kept)


def _smallest(columns: Sequence[Column]) -> int:
    widths = [column.type.bit_width if pa.types.is_primitive(column.type) else 1_000
              for column in columns]
    return widths.index(min(widths))


def options_of(source: Source) -> ReadOptions:
    """How a planned source is read."""
    return place_options(source.place, source.start, read_committed=source.read_committed,
                         on_recreated=source.on_recreated)
