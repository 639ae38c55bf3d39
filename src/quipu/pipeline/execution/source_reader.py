"""`SourceReader`: reads the messages of a source, decodes them and opens their envelopes.

    reader = source_reader_of(prune(source, needed))
    for part in reader.read(ranges): ...     # part.messages, .opened.batch, .opened.letters
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import NamedTuple

import pyarrow as pa

from quipu.client.fetch import OnLoss, raise_loss
from quipu.client.ranges import Range
from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import EVERYTHING
from quipu.pipeline.envelopes.factory import make_envelope
from quipu.pipeline.execution.pruning import PrunedSource, read_options
from quipu.pipeline.formats.bounds import blocks
from quipu.pipeline.formats.contract import Decoded, Format
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.reading.loop import Read, read_ranges
from quipu.pipeline.source import KeyShape

_READERS_MAX = 64  # kept by a process


class OpenedMessages(NamedTuple):
    """Some messages of one partition, and the rows or events and dead letters made of them."""

    messages: Messages
    opened: Opened


def source_reader_of(source: PrunedSource) -> "SourceReader":
    """The reader of a source; made once per process, because parsing schemas takes time."""
    return _reader(pickle.dumps(source))


@lru_cache(maxsize=_READERS_MAX)
def _reader(data: bytes) -> "SourceReader":
    return SourceReader(pickle.loads(data))  # noqa: S301 pickled just now


class SourceReader:
    """Reads the ranges of a source's topics, and opens the messages in them."""

    def __init__(self, given: PrunedSource) -> None:
        source = given.source
        self._values = given.values
        self._envelope = make_envelope(source)
        self._value = make_format(source.value)
        wants_key = source.is_keyed or source.key_shape is not KeyShape.HIDDEN
        self._key = make_format(source.key) if source.key is not None and wants_key else None
        options = read_options(source)
        self._client = options.client
        self._direct = options.direct_read

    def read(
        self, ranges: Sequence[Range], on_loss: OnLoss = raise_loss,
    ) -> Iterator[OpenedMessages]:
        """Every message of some ranges, in blocks that are decoded together."""
        done = {each.topic_partition: each.first for each in ranges}
        for read in read_ranges(self._client, ranges, self._envelope.wanted, on_loss=on_loss,
                                direct=self._direct):
            first = done[read.range.topic_partition]
            done[read.range.topic_partition] = read.next_offset
            whole = read.range._replace(first=first, end=read.next_offset)
            everything = cache(partial(self._reread, whole))  # once for all blocks
            for rows in self._blocks(read.batch):
                messages = self._messages(read, rows, everything)
                yield OpenedMessages(messages, self._envelope.open(messages))

    def _blocks(self, batch: pa.RecordBatch) -> Iterator[slice]:
        formats: list[tuple[str, Format]] = [("value", self._value)]
        if self._key is not None:
            formats.append(("key", self._key))
        return blocks([column for _, each in formats for column in each.columns],
                      [batch.column(name) for name, _ in formats])

    def _messages(
        self, read: Read, rows: slice, everything: Callable[[], pa.RecordBatch],
    ) -> Messages:
        records = read.batch[rows]
        key = None if self._key is None else self._key.decode(records.column("key"))
        value = self._value.decode(records.column("value"))
        if self._values is not None:
            value = Decoded([value.columns[index] for index in self._values], *value[1:])
        return Messages(read.range.topic, read.range.partition, records, value, key,
                        lambda: everything()[rows])

    def _reread(self, whole: Range) -> pa.RecordBatch:
        """The records of a range with all their columns: dead letters hold whole records."""
        parts = [read.batch for read in read_ranges(
            self._client, [whole], EVERYTHING, direct=self._direct)]
        (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        return batch
