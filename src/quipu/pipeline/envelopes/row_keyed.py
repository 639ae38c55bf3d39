"""Envelopes of messages without a key: rows tell themselves apart, by some columns or by all.

    DEBEZIUM UPSERT, DEBEZIUM with PRIMARY KEY (…)    by those columns
    DEBEZIUM without                                  by all columns

By some columns a row replaces the one that had the same values there.  A change event deletes the
row `before` and inserts the row `after`; so a change of those columns moves the row.

By all columns rows are counted: `before` takes one away, `after` adds one.  Such a source has no
metadata, because the row `before` does not tell the metadata that it was inserted with.  A change
event that was sent twice counts twice.

A message whose value is bad names no row: it becomes a dead letter, whatever the policy.  So does
a change of which the row `before` is missing, where it is needed to know what to take away.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.events import SLOT_UNIT, Action, Keeping, event_shape
from quipu.pipeline.envelopes.faults import BEFORE_MISSING, Faults, Mask, flags
from quipu.pipeline.envelopes.identity import encode_rows, key_identities
from quipu.pipeline.envelopes.metadata import (
    AFTER,
    BEFORE,
    OPERATION,
    item_columns,
    wanted_by,
)
from quipu.pipeline.envelopes.rows import (
    error_shown,
    selected,
    value_faults,
    with_bad_records,
)
from quipu.pipeline.envelopes.upsert import order_columns, row_and_absence
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, Source


class RowKeyedEnvelope:
    """See above."""

    def __init__(self, source: Source) -> None:
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
        faults = Faults(messages.size)
        value_faults(messages, faults)
        self._need_before(messages, faults)
        undecoded = faults.mask.copy()
        columns, absent = row_and_absence(messages, AFTER)
        items = item_columns(source.items, messages, faults, ~(absent | undecoded))
        texts = faults.texts()
        lost = undecoded if source.errors is ErrorPolicy.INLINE else faults.mask
        inserted = ~(absent | lost)
        shown = [*error_shown(source.error_column, texts), *columns, *items]
        after = [*self._front(messages, columns, Action.ROW, 1), *shown]
        before = self._before(messages, after[0], inserted, lost)
        return Opened(_interleaved((before, _Part(after, inserted)), self.shape.schema),
                      letters(messages, lost, texts) if faults else no_letters())

    def _need_before(self, messages: Messages, faults: Faults) -> None:
        """A delete says only by its row before what it deletes; without key, so does an update."""
        removing = ["d"] if self._places else ["d", "u"]
        value = messages.value
        if value.columns[BEFORE].null_count:
            operation = pc.is_in(value.columns[OPERATION], pa.array(removing))
            faults.add_everywhere(
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
    """Events message by message; of one message in the order of the parts."""
    batches = [selected(pa.RecordBatch.from_arrays(part.columns, schema=schema), part.kept)
               for part in parts]
    if batches[0].num_rows == 0:
        return batches[1]
    message = np.concatenate([np.flatnonzero(part.kept) for part in parts])
    return pa.concat_batches(batches).take(pa.array(np.argsort(message, kind="stable")))
