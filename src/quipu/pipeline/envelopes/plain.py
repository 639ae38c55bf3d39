"""ENVELOPE NONE: a message is a row.

    key        value      without a key column      with one (INCLUDE KEY)
    good       good       row                       row
    none       good       row                       row, its key columns NULL
    good       none       nothing                   error: Value not present for message
    none       none       nothing                   nothing
    any        bad        error                     error
    bad        any        as if it were good        error

A value is none if the message has no value, or if it decodes to nothing.
"""

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.metadata import item_columns, wanted_by
from quipu.pipeline.envelopes.row_errors import VALUE_MISSING, RowErrors, flags
from quipu.pipeline.envelopes.rows import (
    add_key_errors,
    add_value_errors,
    error_shown,
    key_shown,
    selected,
    with_bad_records,
)
from quipu.pipeline.source import ErrorPolicy, KeyShape, PlannedSource
from quipu.pipeline.types import schema_of


class PlainEnvelope:
    """Opens messages with ENVELOPE NONE: each is a row to add."""

    def __init__(self, source: PlannedSource) -> None:
        self._source = source
        self._shows_key = source.key_shape is not KeyShape.HIDDEN
        self._schema = schema_of(source.columns)
        self.wanted = wanted_by(source.items)._replace(key=self._shows_key)

    def open(self, messages: Messages) -> Opened:
        """Rows of the source's columns, and dead letters."""
        source = self._source
        messages = with_bad_records(messages)
        row_errors = RowErrors(messages.size)
        add_value_errors(messages, row_errors)
        absent = flags(messages.value.absent)
        key = messages.key if self._shows_key else None
        if self._shows_key:
            assert key is not None, source.name
            add_key_errors(messages, row_errors, ~np.zeros_like(absent))
            no_key = flags(key.absent)
            row_errors.add_where(absent & ~no_key, VALUE_MISSING)
        items = item_columns(source.items, messages, row_errors, ~absent)
        inline = source.errors is ErrorPolicy.INLINE
        kept = ~absent | row_errors.mask if inline else ~(absent | row_errors.mask)
        texts = row_errors.texts()
        columns = [*key_shown(source, key.columns if key else None),
                   *error_shown(source.error_column, texts), *messages.value.columns, *items]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Opened(selected(batch, kept),
                      no_letters() if inline else letters(messages, row_errors.mask, texts))
