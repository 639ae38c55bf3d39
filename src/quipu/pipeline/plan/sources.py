"""`plan_source`: plans a CREATE SOURCE statement, by passes in this order.

Passes that need only the statement come first, then those that use Kafka and the registry.
"""

from quipu.pipeline.plan.draft import Connections, Draft, Pass
from quipu.pipeline.plan.external_facts import ExternalFacts
from quipu.pipeline.plan.formats import resolve_key, resolve_value
from quipu.pipeline.plan.include import add_metadata, check_include
from quipu.pipeline.plan.keys import identify_rows, require_key, shape_key
from quipu.pipeline.plan.names import check_names, rename_columns
from quipu.pipeline.plan.options import read_options
from quipu.pipeline.plan.policies import choose_errors, order_of
from quipu.pipeline.plan.rows import find_columns
from quipu.pipeline.plan.start import find_start
from quipu.pipeline.plan.topic_location import count_partitions, find_topic_location
from quipu.pipeline.source import EnvelopeKind, PlannedSource
from quipu.pipeline.sql.errors import located
from quipu.pipeline.sql.statements import CreateSource, EnvelopeClause

PASSES: tuple[Pass, ...] = (
    read_options,
    check_include,
    find_topic_location,
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


def plan_source(statement: CreateSource, text: str, facts: ExternalFacts,
                connections: Connections) -> PlannedSource:
    """The source of a statement; `text` is the text that its spans refer to."""
    envelope = statement.envelope or EnvelopeClause(EnvelopeKind.NONE)
    draft = Draft(statement, facts, connections, envelope)
    with located(text):
        for each in PASSES:
            draft = each(draft)
        return _source(draft)


def _source(draft: Draft) -> PlannedSource:
    return PlannedSource(
        name=draft.statement.name.text,
        location=draft.location,
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
        direct_read=draft.direct_read,
    )
