"""ENVELOPE MATERIALIZE: rows with a time and a difference, and progress that closes times.

A message has updates (a row, a time, by how many copies the row changes) or progress: all updates
with times in [lower, upper) were sent, with a count for each time.  Messages may come in any order
and more than once; a time is complete when progress has closed it and all its updates have come.
The table checks that (`tables/timing.py`); here updates become events with #time and #diff, and
progress becomes an event whose identity is JSON:

    {"lower": 3, "upper": 5, "counts": [[3, 2], [4, 1]]}     "upper": null, there is no later time
    {"lost": 1}                                               a message of updates was bad

Rows are counted, all columns being their identity; with PRIMARY KEY those columns are the identity,
and a row keeps the metadata of the message that inserted it.
"""

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.events import SLOT_UNIT, Action, event_shape
from quipu.pipeline.envelopes.identity import encode_rows, key_identities
from quipu.pipeline.envelopes.metadata import item_columns, wanted_by
from quipu.pipeline.envelopes.row_errors import RowErrors, flags
from quipu.pipeline.envelopes.rows import add_value_errors, with_bad_records
from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.formats.materialize import changes_of
from quipu.pipeline.source import PlannedSource


class MaterializeEnvelope:
    """Opens messages with ENVELOPE MATERIALIZE: rows with a time and a difference, and progress."""

    def __init__(self, source: PlannedSource) -> None:
        assert source.error_column is None, source.name  # an error would belong to no row
        self._source = source
        names = [column.name for column in source.value_columns]
        self._places = [names.index(name) for name in source.identity]
        self.shape = event_shape(source)
        self.wanted = wanted_by(source.items, offset=True)

    def open(self, messages: Messages) -> Opened:
        """Events, and dead letters."""
        source = self._source
        messages = with_bad_records(messages)
        row_errors = RowErrors(messages.size)
        add_value_errors(messages, row_errors)
        items = item_columns(source.items, messages, row_errors, ~flags(messages.value.absent))
        changes = changes_of(_without(messages.value, row_errors))
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
        messages_of_progress = [*_progress_messages(changes.progress), *_lost(row_errors)]
        if messages_of_progress:
            batch = pa.concat_batches([batch, _progress_events(
                self.shape.schema, messages_of_progress)])
        return Opened(batch, letters(messages, row_errors.mask, row_errors.texts()) if row_errors
                      else no_letters())


def _without(value: Decoded, row_errors: RowErrors) -> Decoded:
    """The messages without the updates of bad messages (a bad header makes a message bad, too)."""
    if not row_errors:
        return value
    return value._replace(columns=null_where(pa.array(row_errors.mask), value.columns))


def _progress_messages(progress: pa.StructArray) -> list[bytes]:
    """Progress as JSON; row by row, as there are few such messages compared with updates."""
    found = []
    for each in progress.to_pylist():
        counts = [[count["time"], count["count"]] for count in each["counts"] or ()]
        found.append(json.dumps({"lower": _only(each["lower"]), "upper": _only(each["upper"]),
                                 "counts": counts}).encode())
    return found


def _only(times: list[int]) -> int | None:
    """The time of a frontier, which has at most one; None if there is no later time."""
    return times[0] if times else None


def _lost(row_errors: RowErrors) -> list[bytes]:
    count = int(np.count_nonzero(row_errors.mask))
    return [json.dumps({"lost": count}).encode()] if count else []


def _progress_events(schema: pa.Schema, messages: list[bytes]) -> pa.RecordBatch:
    count = len(messages)
    zeros: npt.NDArray[np.int64] = np.zeros(count, np.int64)
    front = [pa.array(messages, pa.binary()), pa.array(np.full(count, Action.PROGRESS, np.uint8)),
             pa.array(zeros), pa.array(zeros)]
    rest = [pa.nulls(count, field.type) for field in list(schema)[len(front):]]
    return pa.RecordBatch.from_arrays([*front, *rest], schema=schema)
