"""Envelopes of messages without a key: the identity of a row is some of its columns, or all.

    DEBEZIUM UPSERT, DEBEZIUM with PRIMARY KEY (…)    those columns
    DEBEZIUM without PRIMARY KEY                      all columns

With some columns, a row replaces the row with the same values in these columns.  A change event
deletes the row `before` and inserts the row `after`; so a change of these columns moves the row.

With all columns, rows are counted: `before` removes one, `after` adds one.  Such a source has no
metadata, because the row `before` lacks the metadata that it was inserted with.  A change event
that was sent twice counts twice.

A message whose value is bad has no identity: it becomes a dead letter, with any error policy.  So
does a change without the row `before` where that is needed to know which row to remove.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.events import SLOT_UNIT, Action, Keeping, event_shape
from quipu.pipeline.envelopes.identity import encode_rows, key_identities
from quipu.pipeline.envelopes.metadata import (
    AFTER,
    BEFORE,
    OPERATION,
    item_columns,
    wanted_by,
)
from quipu.pipeline.envelopes.row_errors import BEFORE_MISSING, Mask, RowErrors, flags
from quipu.pipeline.envelopes.rows import (
    add_value_errors,
    error_shown,
    selected,
    with_bad_records,
)
from quipu.pipeline.envelopes.upsert import order_columns, row_and_absence
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, PlannedSource


class RowKeyedEnvelope:
    """Opens change events whose messages have no key: a row's identity is some of its columns."""

    def __init__(self, source: PlannedSource) -> None:
        assert source.key is None, source.name
        assert source.envelope is not EnvelopeKind.UPSERT, source.name
        self._source = source
        names = [column.name for column in source.value_columns]
        self._places = [names.index(name) for name in source.identity]
        self.shape = event_shape(source)
        self.wanted = wanted_by(source.items, offset=True, timestamp=self.shape.ordered)

    def open(self, messages: Messages) -> Opened:
        """Events, and dead letters."""
        source = self._source
        messages = with_bad_records(messages)
        row_errors = RowErrors(messages.size)
        add_value_errors(messages, row_errors)
        self._need_before(messages, row_errors)
        undecoded = row_errors.mask.copy()
        columns, absent = row_and_absence(messages, AFTER)
        items = item_columns(source.items, messages, row_errors, ~(absent | undecoded))
        texts = row_errors.texts()
        lost = undecoded if source.errors is ErrorPolicy.INLINE else row_errors.mask
        inserted = ~(absent | lost)
        shown = [*error_shown(source.error_column, texts), *columns, *items]
        after = [*self._front(messages, columns, Action.ROW, 1), *shown]
        before = self._before(messages, after[0], inserted, lost)
        return Opened(_interleaved((before, _Part(after, inserted)), self.shape.schema),
                      letters(messages, lost, texts) if row_errors else no_letters())

    def _need_before(self, messages: Messages, row_errors: RowErrors) -> None:
        """Set an error for a delete without a row before; if rows are counted, also an update."""
        removing = ["d"] if self._places else ["d", "u"]
        value = messages.value
        if value.columns[BEFORE].null_count:
            operation = pc.is_in(value.columns[OPERATION], pa.array(removing))
            row_errors.add_where(
                flags(operation) & flags(value.columns[BEFORE].is_null()), BEFORE_MISSING)

    def _before(
        self, messages: Messages, inserted_as: pa.BinaryArray, inserted: Mask, lost: Mask,
    ) -> "_Part":
        columns, absent = row_and_absence(messages, BEFORE)
        taken = ~(absent | lost)
        if self.shape.keeping is Keeping.COUNTS:
            return _Part([*self._front(messages, columns, Action.ROW, -1), *columns], taken)
        front = self._front(messages, columns, Action.DELETE, -1)
        # a row that only changes is replaced: there is no need to delete it first
        stays = flags(pc.equal(front[0], inserted_as)) & inserted
        nothing = [pa.nulls(messages.size, field.type) for field in self.shape.row]
        return _Part([*front, *nothing], taken & ~stays)

    def _front(
        self, messages: Messages, columns: Sequence[pa.Array], action: Action, diff: int,
    ) -> list[pa.Array]:
        if self._places:
            identities, slots = key_identities([columns[place] for place in self._places])
        else:
            identities, slots = encode_rows(columns), np.zeros(messages.size, np.uint8)
        found = [identities, pa.array(slots * np.uint8(SLOT_UNIT) + np.uint8(action))]
        if self.shape.ordered:
            found += order_columns(messages.records)
        if self.shape.keeping is Keeping.COUNTS:
            found.append(pa.repeat(pa.scalar(diff, pa.int64()), messages.size))
        if self.shape.errors:
            found.append(pa.nulls(messages.size, pa.string()))
        return found


class _Part(NamedTuple):
    """Events, at most one for each message."""

    columns: list[pa.Array]
    kept: Mask


def _interleaved(parts: tuple[_Part, _Part], schema: pa.Schema) -> pa.RecordBatch:
    """The events in the order of messages; those of one message in the order of the parts."""
    batches = [selected(pa.RecordBatch.from_arrays(part.columns, schema=schema), part.kept)
               for part in parts]
    if batches[0].num_rows == 0:
        return batches[1]
    message = np.concatenate([np.flatnonzero(part.kept) for part in parts])
    return pa.concat_batches(batches).take(pa.array(np.argsort(message, kind="stable")))
