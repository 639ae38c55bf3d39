"""ENVELOPE UPSERT, and change events whose messages have a key: the latest message of a key counts.

    key        value      event
    good       good       ROW: the row, with the metadata of this message
    good       none       DELETE
    good       bad        ERROR of that key, until its next message
    none       any        ERROR of messages without key (STRICT), until one has no value either
    bad        any        ERROR of those bytes (STRICT), until a message has them and no value

What ERROR becomes without STRICT is said in `contract.py`.  For DEBEZIUM UPSERT, and DEBEZIUM with
a key, the value is the row `after` the change, and none if there is none: the table remembers for
each key the row and the metadata that it was inserted with, so `before` is not needed.

Not here: rows that tell themselves apart, without a key of messages (`row_keyed.py`).
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
from quipu.pipeline.envelopes.faults import KEY_MISSING, Faults, Mask, bad_rows, flags
from quipu.pipeline.envelopes.identity import key_identities
from quipu.pipeline.envelopes.metadata import AFTER, item_columns, wanted_by
from quipu.pipeline.envelopes.rows import (
    error_shown,
    key_faults,
    key_shown,
    selected,
    value_faults,
    with_bad_records,
)
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, Source

_NO_TIME = np.iinfo(np.int64).min + 1  # a message without timestamp is older than all others


class UpsertEnvelope:
    """Events by the key of messages.  See above."""

    def __init__(self, source: Source) -> None:
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
        faults = Faults(messages.size)
        keys = _Keys.of(messages)
        faults.add_everywhere(keys.missing & ~absent, KEY_MISSING)
        value_faults(messages, faults)
        key_faults(messages, faults, ~absent)  # no value: that takes the error away
        items = item_columns(source.items, messages, faults, ~absent)
        texts = faults.texts()
        outcome = _outcome(source, faults, keys, absent)
        front = [keys.identities, pa.array(outcome.actions + keys.slots * np.uint8(SLOT_UNIT))]
        if self.shape.ordered:
            front += order_columns(messages.records)
        if self.shape.errors:
            front.append(texts)
        batch = pa.RecordBatch.from_arrays(
            [*front, *key_shown(source, key.columns), *error_shown(source.error_column, texts),
             *columns, *items], schema=self.shape.schema)
        return Opened(selected(batch, outcome.kept),
                      letters(messages, outcome.letters, texts) if faults else no_letters())


class _Keys(NamedTuple):
    """Who messages are about."""

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
    """What becomes of messages."""

    actions: npt.NDArray[np.uint8]
    kept: Mask  # as events
    letters: Mask


def _outcome(source: Source, faults: Faults, keys: _Keys, absent: Mask) -> _Outcome:
    actions = np.where(absent, Action.DELETE, Action.ROW).astype(np.uint8)
    none = np.zeros(len(actions), np.bool_)
    if source.errors is ErrorPolicy.STRICT:
        actions[faults.mask] = Action.ERROR
        return _Outcome(actions, ~none, none)
    no_identity = keys.missing | keys.bad
    if source.errors is ErrorPolicy.INLINE:
        return _Outcome(actions, ~no_identity, faults.mask & no_identity)
    return _Outcome(actions, ~(no_identity | faults.mask), faults.mask)


def row_and_absence(messages: Messages, place: int | None) -> tuple[Sequence[pa.Array], Mask]:
    """The value's row, or with `place` the record in that column; and where there is none."""
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
