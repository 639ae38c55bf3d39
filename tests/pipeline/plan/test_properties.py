"""What holds for every source."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.printer import canonical
from quipu.pipeline.sql.statements import CreateSource, KafkaClause
from quipu.pipeline.types import schema_of
from tests.pipeline.plan.describe import CONNECTIONS
from tests.pipeline.plan.fake_facts import TOPICS, FakeFacts
from tests.pipeline.sql.strategies import sources

clauses = st.sampled_from(sorted(TOPICS)).map(
    lambda topic: KafkaClause(broker="b:1", topics=(topic,)))


@given(written=sources(), kafka=clauses, keep=st.booleans())
@settings(max_examples=100)
def test_any_source_is_planned_or_refused(written: CreateSource, kafka: KafkaClause,
                                          keep: bool) -> None:
    """I5, I6, I19: never another error; names are unique, and Arrow takes the columns."""
    options = written.options if keep else ()
    text = canonical(replace(written, kafka=kafka, options=options), secrets=True)
    statement = parse_one(text)
    assert isinstance(statement, CreateSource)
    planned = plan_or_error(statement, text)

    if isinstance(planned, SqlError):
        assert planned.hint
        assert str(planned).startswith("line ")
    else:
        names = [column.name.lower() for column in planned.columns]
        assert len(set(names)) == len(names) > 0
        assert len(schema_of(planned.columns)) == len(names)


def plan_or_error(statement: CreateSource, text: str) -> PlannedSource | SqlError:
    try:
        return plan_source(statement, text, FakeFacts(), CONNECTIONS)
    except SqlError as error:
        return error
