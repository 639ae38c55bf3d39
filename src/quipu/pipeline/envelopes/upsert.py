"""ENVELOPE UPSERT, and change events whose messages have a key: the latest message of a key counts.

    key        value      event
    good       good       ROW: the row, with the metadata of this message
    good       none       DELETE
    good       bad        ERROR of that key, until its next message
    none       any        ERROR of messages without key (STRICT), until one has no value either
    bad        any        ERROR of those bytes (STRICT), until a message has them and no value

`contract.py` says what an ERROR becomes without STRICT.  For DEBEZIUM UPSERT, and DEBEZIUM with
a key, the value is the row `after` the change, and none if there is none: the table stores for
each key the row and the metadata that it was inserted with, so `before` is not needed.

Not here: messages without a key, whose rows are identified by their columns (`row_keyed.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.events import SLOT_UNIT, Action, Slot, event_shape
from quipu.pipeline.envelopes.identity import key_identities
from quipu.pipeline.envelopes.metadata import AFTER, item_columns, wanted_by
from quipu.pipeline.envelopes.row_errors import KEY_MISSING, Mask, RowErrors, bad_rows, flags
from quipu.pipeline.envelopes.rows import (
    add_key_errors,
    add_value_errors,
    error_shown,
    key_shown,
    selected,
    with_bad_records,
)
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, PlannedSource

_NO_TIME = np.iinfo(np.int64).min + 1  # a message without timestamp is older than all others


class UpsertEnvelope:
    """Opens messages with a key: the latest message of a key counts."""

    def __init__(self, source: PlannedSource) -> None:
        assert source.key is not None, source.name
        self._source = source
        self._wrapped = source.envelope is not EnvelopeKind.UPSERT
        self.shape = event_shape(source)
        ordered = self.shape.ordered
        self.wanted = wanted_by(source.items, offset=True, timestamp=ordered)._replace(key=True)

    def open(self, messages: Messages) -> Opened:
        """Events, and dead letters."""
        source = self._source
        messages = with_bad_records(messages)
        key = messages.key
        assert key is not None, source.name
        columns, absent = row_and_absence(messages, AFTER if self._wrapped else None)
        row_errors = RowErrors(messages.size)
        keys = _Keys.of(messages)
        row_errors.add_where(keys.missing & ~absent, KEY_MISSING)
        add_value_errors(messages, row_errors)
        add_key_errors(messages, row_errors, ~absent)  # without a value it removes the error
        items = item_columns(source.items, messages, row_errors, ~absent)
        texts = row_errors.texts()
        outcome = _outcome(source, row_errors, keys, absent)
        front = [keys.identities, pa.array(outcome.actions + keys.slots * np.uint8(SLOT_UNIT))]
        if self.shape.ordered:
            front += order_columns(messages.records)
        if self.shape.errors:
            front.append(texts)
        batch = pa.RecordBatch.from_arrays(
            [*front, *key_shown(source, key.columns), *error_shown(source.error_column, texts),
             *columns, *items], schema=self.shape.schema)
        return Opened(selected(batch, outcome.kept),
                      letters(messages, outcome.letters, texts) if row_errors else no_letters())


class _Keys(NamedTuple):
    """The identities of messages, and which keys are missing or bad."""

    identities: pa.BinaryArray
    slots: npt.NDArray[np.uint8]
    missing: Mask
    bad: Mask

    @classmethod
    def of(cls, messages: Messages) -> "_Keys":
        key = messages.key
        assert key is not None
        identities, slots = key_identities(key.columns)
        missing = flags(key.absent)
        bad = np.zeros(messages.size, np.bool_)
        bad[bad_rows(key.errors)] = True
        if missing.any():
            slots[missing] = Slot.NO_KEY
            identities = pc.if_else(pa.array(missing), pa.scalar(b"", pa.binary()), identities)
        if bad.any():
            slots[bad] = Slot.RAW
            identities = pc.if_else(pa.array(bad), messages.records.column("key"), identities)
        return cls(identities, slots, missing, bad)


class _Outcome(NamedTuple):
    """The action of each message, and which messages become events and dead letters."""

    actions: npt.NDArray[np.uint8]
    kept: Mask  # as events
    letters: Mask


def _outcome(source: PlannedSource, row_errors: RowErrors, keys: _Keys, absent: Mask) -> _Outcome:
    actions = np.where(absent, Action.DELETE, Action.ROW).astype(np.uint8)
    none = np.zeros(len(actions), np.bool_)
    if source.errors is ErrorPolicy.STRICT:
        actions[row_errors.mask] = Action.ERROR
        return _Outcome(actions, ~none, none)
    no_identity = keys.missing | keys.bad
    if source.errors is ErrorPolicy.INLINE:
        return _Outcome(actions, ~no_identity, row_errors.mask & no_identity)
    return _Outcome(actions, ~(no_identity | row_errors.mask), row_errors.mask)


def row_and_absence(messages: Messages, place: int | None) -> tuple[Sequence[pa.Array], Mask]:
    """The value's row, or with `place` the record in that column; and which messages have none."""
    value = messages.value
    absent = flags(value.absent)
    if place is None:
        return value.columns, absent
    record = value.columns[place]
    without = flags(pc.is_null(record))
    without[bad_rows(value.errors)] = False
    return record.flatten(), absent | without


def order_columns(records: pa.RecordBatch) -> list[pa.Array]:
    """#order and #offset of records."""
    times = records.column("timestamp").cast(pa.int64())
    return [times.fill_null(_NO_TIME) if times.null_count else times, records.column("offset")]
