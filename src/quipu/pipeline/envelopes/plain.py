"""ENVELOPE NONE: a message is a row.

    key        value      without a key column      with one (INCLUDE KEY)
    good       good       row                       row
    none       good       row                       row, its key columns NULL
    good       none       nothing                   error: Value not present for message
    none       none       nothing                   nothing
    any        bad        error                     error
    bad        any        as if it were good        error

A value is none if the message has none, and also if the format finds nothing in it.
"""

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages, Opened
from quipu.pipeline.envelopes.dead_letters import letters, no_letters
from quipu.pipeline.envelopes.faults import VALUE_MISSING, Faults, flags
from quipu.pipeline.envelopes.metadata import item_columns, wanted_by
from quipu.pipeline.envelopes.rows import (
    error_shown,
    key_faults,
    key_shown,
    selected,
    value_faults,
    with_bad_records,
)
from quipu.pipeline.source import ErrorPolicy, KeyShape, Source
from quipu.pipeline.types import schema_of


class PlainEnvelope:
    """See above."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._shows_key = source.key_shape is not KeyShape.HIDDEN
        self._schema = schema_of(source.columns)
        self.wanted = wanted_by(source.items)._replace(key=self._shows_key)

    def open(self, messages: Messages) -> Opened:
        """Rows of the source's columns, and dead letters."""
        source = self._source
        messages = with_bad_records(messages)
        faults = Faults(messages.size)
        value_faults(messages, faults)
        absent = flags(messages.value.absent)
        key = messages.key if self._shows_key else None
        if self._shows_key:
            assert key is not None, source.name
            key_faults(messages, faults, ~np.zeros_like(absent))
            no_key = flags(key.absent)
            faults.add_everywhere(absent & ~no_key, VALUE_MISSING)
        items = item_columns(source.items, messages, faults, ~absent)
        inline = source.errors is ErrorPolicy.INLINE
        kept = ~absent | faults.mask if inline else ~(absent | faults.mask)
        texts = faults.texts()
        columns = [*key_shown(source, key.columns if key else None),
                   *error_shown(source.error_column, texts), *messages.value.columns, *items]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Opened(selected(batch, kept),
                      no_letters() if inline else letters(messages, faults.mask, texts))
