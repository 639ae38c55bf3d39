"""`make_envelope`: the envelope of a source."""

from typing import assert_never

from quipu.pipeline.envelopes.contract import Envelope
from quipu.pipeline.envelopes.plain import PlainEnvelope
from quipu.pipeline.envelopes.row_keyed import RowKeyedEnvelope
from quipu.pipeline.envelopes.upsert import UpsertEnvelope
from quipu.pipeline.source import EnvelopeKind, PlannedSource


def make_envelope(source: PlannedSource) -> Envelope:
    """The envelope for the messages of a source."""
    kind = source.envelope
    match kind:
        case EnvelopeKind.NONE:
            return PlainEnvelope(source)
        case EnvelopeKind.UPSERT:
            return UpsertEnvelope(source)
        case EnvelopeKind.DEBEZIUM_UPSERT | EnvelopeKind.DEBEZIUM:
            return RowKeyedEnvelope(source) if source.key is None else UpsertEnvelope(source)
        case EnvelopeKind.MATERIALIZE:
            from quipu.pipeline.envelopes.materialize import (  # noqa: PLC0415 loads TLS
                MaterializeEnvelope,
            )
            return MaterializeEnvelope(source)
        case _:
            assert_never(kind)
