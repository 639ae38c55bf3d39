"""A CREATE SOURCE statement to a planned source: passes, in this order.

First what the statement alone can get wrong, then what Kafka and the registry have to say.
"""

from quipu.pipeline.plan.draft import Connections, Draft, Pass
from quipu.pipeline.plan.formats import resolve_key, resolve_value
from quipu.pipeline.plan.include import add_metadata, check_include
from quipu.pipeline.plan.keys import identify_rows, require_key, shape_key
from quipu.pipeline.plan.names import check_names, rename_columns
from quipu.pipeline.plan.options import read_options
from quipu.pipeline.plan.places import count_partitions, find_place
from quipu.pipeline.plan.policies import choose_errors, order_of
from quipu.pipeline.plan.rows import find_columns
from quipu.pipeline.plan.start import find_start
from quipu.pipeline.plan.world import World
from quipu.pipeline.source import EnvelopeKind, Source
from quipu.pipeline.sql.errors import located
from quipu.pipeline.sql.statements import CreateSource, Envelope

PASSES: tuple[Pass, ...] = (
    read_options,
    check_include,
    find_place,
    count_partitions,
    find_start,
    resolve_value,
    find_columns,
    resolve_key,
    require_key,
    shape_key,
    add_metadata,
    choose_errors,
    rename_columns,
    check_names,
    identify_rows,
)


def plan_source(statement: CreateSource, text: str, world: World,
                connections: Connections) -> Source:
    """The source that a statement describes; `text` is what its spans are about."""
    envelope = statement.envelope or Envelope(EnvelopeKind.NONE)
    draft = Draft(statement, world, connections, envelope)
    with located(text):
        for each in PASSES:
            draft = each(draft)
        return _source(draft)


def _source(draft: Draft) -> Source:
    return Source(
        name=draft.statement.name.text,
        place=draft.place,
        start=draft.start,
        value=draft.value,
        value_columns=draft.value_columns,
        key=draft.key,
        key_columns=draft.key_columns,
        key_shape=draft.key_shape,
        identity=draft.identity,
        envelope=draft.envelope.kind,
        order_by=order_of(draft),
        items=draft.items,
        errors=draft.errors,
        error_column=draft.error_column,
        read_committed=draft.read_committed,
        on_recreated=draft.on_recreated,
    )
