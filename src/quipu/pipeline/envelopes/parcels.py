"""Parcels: the events of one bucket as bytes, sent from the task that read them to the table.

A parcel is an Arrow IPC stream of events; each of its batches has the topic, partition and first
offset that it was read from, so that the batches of several parcels can be sorted.

    packer = Packer(shape, buckets=16)
    packer.add(messages, envelope.open(messages).batch)     for any number of messages
    for bucket, data in packer.parcels(): …                  then it is empty again

    unpack(shape, [data, …]) -> pa.Table                     events, in order, of one bucket

Order: topic, partition, offset.  Messages of one key are in one partition as long as the number
of partitions does not change, and batches of a stream follow each other, so the last event of a key
comes last.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.events import SLOT_UNIT, EventShape, Keeping
from quipu.pipeline.envelopes.fingerprints import buckets_of

BUCKETS_MAX = 4096
_SAMPLE = 1024  # events in which to look for repeated keys
_DISTINCT_SHARE = 0.5


class ForeignParcel(ValueError):
    """Bytes that are no parcel of this source's events; the message says how they differ."""


class Parcel(NamedTuple):
    """Events of one bucket."""

    bucket: int
    data: bytes


class Packer:
    """Sorts events into buckets, and collects them until `parcels` is called."""

    def __init__(self, shape: EventShape, *, buckets: int) -> None:
        if not 1 <= buckets <= BUCKETS_MAX:
            raise ValueError(f"{buckets} buckets; there can be 1 to {BUCKETS_MAX}")
        self._shape = shape
        self._buckets = buckets
        self._later_wins = (shape.keeping is Keeping.LATEST
                            and not shape.ordered and not shape.timed)
        self._sinks: dict[int, tuple[pa.BufferOutputStream, ipc.RecordBatchStreamWriter]] = {}
        self.size = 0  # approximate bytes collected; the caller takes the parcels when it is large

    def add(self, messages: Messages, events: pa.RecordBatch) -> None:
        """Collect the events of messages; messages may come in any order."""
        if not events.schema.equals(self._shape.schema):
            raise ForeignParcel(f"events with columns {_names(events.schema)}, "
                                f"wanted {_names(self._shape.schema)}")
        if events.num_rows == 0:
            return
        events = self._last_of_each(events)
        offset = messages.records.column("offset")[0].as_py()
        place = {"place": json.dumps([messages.topic, messages.partition, offset])}
        for bucket, part in self._split(events):
            self._writer(bucket).write_batch(part, custom_metadata=place)
        self.size += events.get_total_buffer_size()

    def parcels(self) -> Iterator[Parcel]:
        """The parcels collected so far; the packer is empty afterwards."""
        sinks, self._sinks, self.size = self._sinks, {}, 0
        for bucket, (sink, writer) in sorted(sinks.items()):
            writer.close()
            yield Parcel(bucket, sink.getvalue().to_pybytes())

    def _last_of_each(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Only the last event of each identity, if keys repeat: the others would have no effect."""
        if not self._later_wins:
            return events
        identities = events.column(0)
        sample = identities.slice(0, _SAMPLE)
        if pc.count_distinct(sample).as_py() > len(sample) * _DISTINCT_SHARE:
            return events
        codes = identities.dictionary_encode()
        slots = events.column(1).to_numpy() // SLOT_UNIT
        last = np.full(len(codes.dictionary) * SLOT_UNIT, -1)
        last[codes.indices.to_numpy() * SLOT_UNIT + slots] = np.arange(len(events))
        return events.take(pa.array(np.sort(last[last >= 0])))

    def _split(self, events: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._buckets == 1:
            yield 0, events
            return
        buckets = buckets_of(events.column(0), self._buckets)
        order = np.argsort(buckets, kind="stable")  # 16 bits and stable: a radix sort
        ends = np.cumsum(np.bincount(buckets, minlength=self._buckets))
        sorted_events = events.take(pa.array(order))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                yield bucket, sorted_events.slice(start, end - start)
            start = end

    def _writer(self, bucket: int) -> ipc.RecordBatchStreamWriter:
        if bucket not in self._sinks:
            sink = pa.BufferOutputStream()
            self._sinks[bucket] = sink, ipc.new_stream(sink, self._shape.schema)
        return self._sinks[bucket][1]


def unpack(shape: EventShape, parcels: Iterable[bytes]) -> pa.Table:
    """The events of all parcels, in order; nothing is copied."""
    placed = []
    for data in parcels:
        placed += _batches(shape, data)
    placed.sort(key=lambda item: item[0])
    return pa.Table.from_batches([batch for _, batch in placed], shape.schema)


def _batches(shape: EventShape, data: bytes) -> list[tuple[tuple[str, int, int], pa.RecordBatch]]:
    found = []
    try:
        reader = ipc.open_stream(pa.py_buffer(data))
        if not reader.schema.equals(shape.schema):
            raise ForeignParcel(f"a parcel with columns {_names(reader.schema)}, "
                                f"wanted {_names(shape.schema)}")
        for batch, metadata in reader.iter_batches_with_custom_metadata():
            topic, partition, offset = json.loads(metadata["place"])
            found.append(((topic, partition, offset), batch))
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ForeignParcel):
            raise
        raise ForeignParcel(f"no parcel: {error}") from error
    return found


def _names(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
