"""ENVELOPE MATERIALIZE: rows with a time and a difference, and progress that closes times.

A message has updates (a row, a time, by how many copies the row changes) or progress: all updates
with times in [lower, upper) were sent, and so many at each time.  Messages may come in any order
and more than once; a time is seen when progress has closed it and its updates are all there.
That is for the table to tell (`tables/timing.py`); here updates become events with #time and
#diff, and progress becomes an event whose identity is JSON:

    {"lower": 3, "upper": 5, "counts": [[3, 2], [4, 1]]}     "upper": null, there is no later time
    {"lost": 1}                                               a message of updates was bad

Rows are counted, all columns being their identity; with PRIMARY KEY they are told apart by those
columns, and each keeps the metadata of the message that inserted it.
"""

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.events import SLOT_UNIT, Action, event_shape
from quipu.pipeline.envelopes.faults import Faults, flags
from quipu.pipeline.envelopes.identity import encode_rows, key_identities
from quipu.pipeline.envelopes.metadata import item_columns, wanted_by
from quipu.pipeline.envelopes.rows import value_faults, with_bad_records
from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.formats.materialize import changes_of
from quipu.pipeline.source import Source


class MaterializeEnvelope:
    """See above."""

    def __init__(self, source: Source) -> None:
        assert source.error_column is None, source.name  # nobody can say which row it would be in
        self._source = source
        names = [column.name for column in source.value_columns]
        self._places = [names.index(name) for name in source.identity]
        self.shape = event_shape(source)
        self.wanted = wanted_by(source.items, offset=True)

    def open(self, messages: Messages) -> Opened:
        """Events, and dead letters."""
        source = self._source
        messages = with_bad_records(messages)
        faults = Faults(messages.size)
        value_faults(messages, faults)
        items = item_columns(source.items, messages, faults, ~flags(messages.value.absent))
        changes = changes_of(_without(messages.value, faults))
        columns = changes.row.flatten()
        if self._places:
            identities, slots = key_identities([columns[place] for place in self._places])
        else:
            identities, slots = encode_rows(columns), np.zeros(len(changes.row), np.uint8)
        kinds = slots * np.uint8(SLOT_UNIT) + np.uint8(Action.ROW)
        front = [identities, pa.array(kinds), changes.diff, changes.time]
        if self.shape.errors:
            front.append(pa.nulls(len(changes.row), pa.string()))
        batch = pa.RecordBatch.from_arrays(
            [*front, *columns, *(item.take(changes.update_message) for item in items)],
            schema=self.shape.schema)
        told = [*_told(changes.progress), *_lost(faults)]
        if told:
            batch = pa.concat_batches([batch, _progress_events(self.shape.schema, told)])
        return Opened(batch, letters(messages, faults.mask, faults.texts()) if faults
                      else no_letters())


def _without(value: Decoded, faults: Faults) -> Decoded:
    """Messages, but none of the updates of those that are bad (a header may be)."""
    if not faults:
        return value
    return value._replace(columns=null_where(pa.array(faults.mask), value.columns))


def _told(progress: pa.StructArray) -> list[bytes]:
    """Progress as JSON; there is little of it, compared with updates."""
    found = []
    for each in progress.to_pylist():
        counts = [[count["time"], count["count"]] for count in each["counts"] or ()]
        found.append(json.dumps({"lower": _only(each["lower"]), "upper": _only(each["upper"]),
                                 "counts": counts}).encode())
    return found


def _only(times: list[int]) -> int | None:
    """The element of an antichain of at most one; none at all is the end of time."""
    return times[0] if times else None


def _lost(faults: Faults) -> list[bytes]:
    count = int(np.count_nonzero(faults.mask))
    return [json.dumps({"lost": count}).encode()] if count else []


def _progress_events(schema: pa.Schema, told: list[bytes]) -> pa.RecordBatch:
    count = len(told)
    zeros: npt.NDArray[np.int64] = np.zeros(count, np.int64)
    front = [pa.array(told, pa.binary()), pa.array(np.full(count, Action.PROGRESS, np.uint8)),
             pa.array(zeros), pa.array(zeros)]
    rest = [pa.nulls(count, field.type) for field in list(schema)[len(front):]]
    return pa.RecordBatch.from_arrays([*front, *rest], schema=schema)
