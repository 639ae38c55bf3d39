"""Messages of a source opened: read, decoded, taken out of their envelope; whatever reads them.

    opener = opener_of(source)
    for found in opener.run(ranges): ...     # found.messages, .opened.batch, .opened.letters

`pruned` is the source as somebody sees it who needs few of its columns.  Values are still decoded
whole, because a message is a row only if all of it is good; but columns that nobody needs are
dropped there and then, and metadata that nobody needs is never read at all.
"""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import pyarrow as pa

from quipu.client.ranges import Range
from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import EVERYTHING
from quipu.pipeline.envelopes.events import Keeping, event_shape
from quipu.pipeline.envelopes.make import make_envelope
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.make import make_format
from quipu.pipeline.reading.loop import Read, read_ranges
from quipu.pipeline.reading.options import ReadOptions
from quipu.pipeline.reading.place import place_options
from quipu.pipeline.source import EnvelopeKind, KeyShape, Source
from quipu.pipeline.types import Column

_KEPT_MAX = 64


class Pruned(NamedTuple):
    """A source with some of its columns: `values` says which of the format's columns those are."""

    source: Source
    values: tuple[int, ...] | None = None  # None: all


class Found(NamedTuple):
    """What some messages held."""

    messages: Messages
    opened: Opened


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


def opener_of(source: Pruned) -> "Opener":
    """The opener of a source; made once in a process, because schemas take time to understand."""
    return _opener(pickle.dumps(source))


@lru_cache(maxsize=_KEPT_MAX)
def _opener(data: bytes) -> "Opener":
    return Opener(pickle.loads(data))  # noqa: S301 pickled just now


class Opener:
    """See above."""

    def __init__(self, given: Pruned) -> None:
        source = given.source
        self._values = given.values
        self._envelope = make_envelope(source)
        self._value = make_format(source.value)
        wants_key = source.is_keyed or source.key_shape is not KeyShape.HIDDEN
        self._key = make_format(source.key) if source.key is not None and wants_key else None
        self._client = options_of(source).client

    def run(self, ranges: Sequence[Range]) -> Iterator[Found]:
        """Everything in some ranges."""
        done = {each.topic_partition: each.first for each in ranges}
        for read in read_ranges(self._client, ranges, self._envelope.wanted):
            first = done[read.range.topic_partition]
            done[read.range.topic_partition] = read.next_offset
            whole = read.range._replace(first=first, end=read.next_offset)
            messages = self._messages(read, whole)
            yield Found(messages, self._envelope.open(messages))

    def _messages(self, read: Read, whole: Range) -> Messages:
        key = None if self._key is None else self._key.decode(read.batch.column("key"))
        value = self._value.decode(read.batch.column("value"))
        if self._values is not None:
            value = Decoded([value.columns[index] for index in self._values], *value[1:])
        return Messages(read.range.topic, read.range.partition, read.batch, value, key,
                        partial(self._reread, whole))

    def _reread(self, whole: Range) -> pa.RecordBatch:
        """The same records with all their columns: a record was bad, and is kept whole."""
        parts = [read.batch for read in read_ranges(self._client, [whole], EVERYTHING)]
        (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        return batch


def options_of(source: Source) -> ReadOptions:
    """How a planned source is read."""
    return place_options(source.place, source.start, read_committed=source.read_committed)
