"""SHOW and EXPLAIN: the objects of the catalog, and how a query would be executed."""

from typing import assert_never

import pyarrow as pa

from quipu.pipeline.command_result import CommandResult
from quipu.pipeline.reading.positions import total
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.spark.queries.errors import explained
from quipu.pipeline.spark.statements.create import unknown
from quipu.pipeline.spark.statements.live_catalog import LiveCatalog, columns_of
from quipu.pipeline.spark.statements.progress import Rates, SourceProgress, progress
from quipu.pipeline.spark.statements.select import select
from quipu.pipeline.spark.statements.snapshots import tasks_of
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.printer import canonical
from quipu.pipeline.sql.query_names import quote_names
from quipu.pipeline.sql.statements import (
    CreateView,
    Explain,
    Name,
    ObjectKind,
    Query,
    Show,
    ShowColumns,
    ShowCreate,
    ShowKind,
)
from quipu.pipeline.types import UnknownType, sql_name

READABLE = (ObjectKind.SOURCE, ObjectKind.VIEW)


def show(live: LiveCatalog, statement: Show, rates: Rates) -> CommandResult:
    """Execute SHOW SOURCES and the like."""
    match statement.kind:
        case ShowKind.SOURCES:
            return CommandResult("", ("name", "envelope", "topics", "materialized"), tuple(
                (name, source.envelope.value, _topics(source), name in live.maintained)
                for name, source in sorted(live.sources.items())))
        case ShowKind.VIEWS:
            return _views(live, rates)
        case ShowKind.SINKS:
            return CommandResult("", ("name", "from", "into", "version", "state", "error"), tuple(
                (name, sink.plan.statement.view.text, sink.plan.statement.kind.value.lower(),
                 sink.written, sink.supervisor.state.value, sink.supervisor.error)
                for name, sink in sorted(live.sinks.items())))
        case ShowKind.CONNECTIONS:
            return CommandResult("", ("name", "to"), tuple(
                (name, "schema registry" if each.is_registry else "kafka")
                for name, each in sorted(live.connections.items())))
        case ShowKind.PROGRESS:
            rows = tuple(map(tuple, progress(live, rates)))
            return CommandResult("", SourceProgress._fields, rows)
        case _:
            assert_never(statement.kind)


def _topics(source: PlannedSource) -> str:
    return source.location.pattern or ", ".join(source.location.topics)


def _views(live: LiveCatalog, rates: Rates) -> CommandResult:
    """All views; a materialized one has the state and error of its first source with an error."""
    health: dict[str, tuple[str | None, str | None]] = {}
    for each in progress(live, rates):
        if each.view not in health or each.error is not None:
            health[each.view] = each.state, each.error
    return CommandResult("", ("name", "materialized", "state", "error"), tuple(
        (name, name in live.maintained, *health.get(name, (None, None)))
        for name in sorted(live.views)))


def show_columns(live: LiveCatalog, statement: ShowColumns) -> CommandResult:
    """The columns of a source or view."""
    name = statement.name
    if live.kind_of(name.text) not in READABLE:
        raise unknown(live, name, *READABLE)
    return CommandResult("", ("name", "type", "nullable"), tuple(
        (field.name, type_name(field.type), field.nullable)
        for field in columns_of(live, name.text)))


def type_name(kind: pa.DataType) -> str:
    """The SQL name of a type; Arrow's name if SQL has none."""
    try:
        return sql_name(kind)
    except UnknownType:
        return str(kind)


def show_create(live: LiveCatalog, statement: ShowCreate) -> CommandResult:
    """The statement that made an object, without its passwords."""
    entry = live.catalog.find(statement.name.text)
    if entry is None or entry.kind is not statement.kind:
        raise unknown(live, statement.name, statement.kind)
    return CommandResult("", ("name", "statement"),
                  ((entry.name, canonical(parse_one(entry.text))),))


def explain(live: LiveCatalog, statement: Explain) -> CommandResult:
    """Execute EXPLAIN: what a query reads of its sources, and Spark's plan of the query."""
    target = statement.target
    if isinstance(target, Query):
        return _lines(_query(live, target.text, target.span.start))
    if isinstance(target, CreateView):
        return _lines(_maintained(live, target.query, target.query_span.start))
    if isinstance(target, Name):
        return _lines(_object(live, target))
    return _lines([canonical(target)])


def _lines(lines: list[str]) -> CommandResult:
    return CommandResult("", ("plan",), tuple((line,) for line in lines))


def _object(live: LiveCatalog, name: Name) -> list[str]:
    if name.text in live.sources and name.text not in live.maintained:
        return _source(live, live.sources[name.text], None)
    if name.text in live.maintained:
        plan = live.maintained[name.text].view.plan
        return _maintained(live, plan.query, 0)
    if name.text in live.views:
        return _query(live, live.views[name.text], 0)
    entry = live.catalog.find(name.text)
    if entry is None:
        raise unknown(live, name, *READABLE)
    return [canonical(parse_one(entry.text))]


def _query(live: LiveCatalog, query: str, start: int) -> list[str]:
    query = quote_names(query)
    with explained(query, start):
        needed = live.reading_scope.analyzed(query).needed
    lines: list[str] = []
    for name, columns in sorted(needed.items()):
        if name in live.maintained:
            version = live.maintained[name].view.files.latest().number
            lines.append(f"view {name}: materialized, version {version}")
        elif name in live.sources:
            lines += _source(live, live.sources[name], columns)
    return [*lines, *_spark_plan(live, query, start)]


def _maintained(live: LiveCatalog, query: str, start: int) -> list[str]:
    query = quote_names(query)
    plan = live.plan_view("", query, start=start)
    how = ("followed row by row, no result is stored" if plan.analysis.is_linear
           else "computed in each version, what differs is stored")
    lines = [f"query: {how}"]
    for name, source in plan.sources.items():
        lines += _source(live, source, plan.analysis.needed[name])
    return lines


def _source(live: LiveCatalog, source: PlannedSource, needed: frozenset[str] | None) -> list[str]:
    names = [column.name for column in source.columns]
    tasks = tasks_of(live.spark, source)
    ranges = [each for task in tasks for each in task]
    lines = [
        f"source {source.name}: envelope {source.envelope.value}, errors {source.errors.value}",
        "  columns: " + ", ".join(
            f"{column.name} {type_name(column.type)}" for column in source.columns),
        f"  reads: {total(ranges)} messages in {len(tasks)} tasks",
        *(f"    {each}" for each in ranges[:20]),
    ]
    if needed is not None:
        left = [name for name in names if name not in needed]
        lines.append(f"  left out: {', '.join(left) if left else 'nothing'}")
    return lines


def _spark_plan(live: LiveCatalog, query: str, start: int) -> list[str]:
    frame = select(live, query, start)
    text = frame._jdf.queryExecution().simpleString()  # noqa: SLF001 what explain() prints
    return str(text).rstrip().split("\n")
