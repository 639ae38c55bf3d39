"""SHOW and EXPLAIN: what there is, and how a query would be carried out."""

from typing import assert_never

import pyarrow as pa

from quipu.pipeline.reading.positions import total
from quipu.pipeline.source import Source
from quipu.pipeline.spark.answers import Answer
from quipu.pipeline.spark.creating import unknown
from quipu.pipeline.spark.names import with_names
from quipu.pipeline.spark.objects import Objects, columns_of
from quipu.pipeline.spark.progress import Progress, Rates, progress
from quipu.pipeline.spark.query_errors import explained
from quipu.pipeline.spark.selecting import select
from quipu.pipeline.spark.snapshots import tasks_of
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.printer import canonical
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


def show(objects: Objects, statement: Show, rates: Rates) -> Answer:
    """A list."""
    match statement.kind:
        case ShowKind.SOURCES:
            return Answer("", ("name", "envelope", "topics", "materialized"), tuple(
                (name, source.envelope.value, _topics(source), name in objects.running)
                for name, source in sorted(objects.sources.items())))
        case ShowKind.VIEWS:
            return _views(objects, rates)
        case ShowKind.SINKS:
            return Answer("", ("name", "from", "into", "version", "state", "error"), tuple(
                (name, sink.plan.statement.view.text, sink.plan.statement.kind.value.lower(),
                 sink.written, sink.keeper.state.value, sink.keeper.error)
                for name, sink in sorted(objects.sinks.items())))
        case ShowKind.CONNECTIONS:
            return Answer("", ("name", "to"), tuple(
                (name, "schema registry" if each.is_registry else "kafka")
                for name, each in sorted(objects.connections.items())))
        case ShowKind.PROGRESS:
            return Answer("", Progress._fields, tuple(map(tuple, progress(objects, rates))))
        case _:
            assert_never(statement.kind)


def _topics(source: Source) -> str:
    return source.place.pattern or ", ".join(source.place.topics)


def _views(objects: Objects, rates: Rates) -> Answer:
    """Views; the state of one that is kept is that of its source that is worst off."""
    health: dict[str, tuple[str | None, str | None]] = {}
    for each in progress(objects, rates):
        if each.view not in health or each.error is not None:
            health[each.view] = each.state, each.error
    return Answer("", ("name", "materialized", "state", "error"), tuple(
        (name, name in objects.running, *health.get(name, (None, None)))
        for name in sorted(objects.views)))


def show_columns(objects: Objects, statement: ShowColumns) -> Answer:
    """The columns of a source or view."""
    name = statement.name
    if objects.kind_of(name.text) not in READABLE:
        raise unknown(objects, name, *READABLE)
    return Answer("", ("name", "type", "nullable"), tuple(
        (field.name, type_name(field.type), field.nullable)
        for field in columns_of(objects, name.text)))


def type_name(kind: pa.DataType) -> str:
    """The SQL name of a type; Arrow's own if SQL has none."""
    try:
        return sql_name(kind)
    except UnknownType:
        return str(kind)


def show_create(objects: Objects, statement: ShowCreate) -> Answer:
    """The statement that made an object, without its passwords."""
    entry = objects.catalog.find(statement.name.text)
    if entry is None or entry.kind is not statement.kind:
        raise unknown(objects, statement.name, statement.kind)
    return Answer("", ("name", "statement"),
                  ((entry.name, canonical(parse_one(entry.text))),))


def explain(objects: Objects, statement: Explain) -> Answer:
    """What a query needs of its sources, and Spark's plan of it."""
    target = statement.target
    if isinstance(target, Query):
        return _lines(_query(objects, target.text, target.span.start))
    if isinstance(target, CreateView):
        return _lines(_kept(objects, target.query, target.query_span.start))
    if isinstance(target, Name):
        return _lines(_object(objects, target))
    return _lines([canonical(target)])


def _lines(lines: list[str]) -> Answer:
    return Answer("", ("plan",), tuple((line,) for line in lines))


def _object(objects: Objects, name: Name) -> list[str]:
    if name.text in objects.sources and name.text not in objects.running:
        return _source(objects, objects.sources[name.text], None)
    if name.text in objects.running:
        plan = objects.running[name.text].view.plan
        return _kept(objects, plan.query, 0)
    if name.text in objects.views:
        return _query(objects, objects.views[name.text], 0)
    entry = objects.catalog.find(name.text)
    if entry is None:
        raise unknown(objects, name, *READABLE)
    return [canonical(parse_one(entry.text))]


def _query(objects: Objects, query: str, start: int) -> list[str]:
    query = with_names(query)
    with explained(query, start):
        needed = objects.reading_scope.analyzed(query).needed
    lines: list[str] = []
    for name, columns in sorted(needed.items()):
        if name in objects.running:
            version = objects.running[name].view.latest().number
            lines.append(f"view {name}: kept up to date, version {version}")
        elif name in objects.sources:
            lines += _source(objects, objects.sources[name], columns)
    return [*lines, *_spark_plan(objects, query, start)]


def _kept(objects: Objects, query: str, start: int) -> list[str]:
    query = with_names(query)
    plan = objects.plan_view("", query, start=start)
    how = ("followed row by row: not kept twice" if plan.analysis.is_linear
           else "computed anew in each version; what differs is kept")
    lines = [f"query: {how}"]
    for name, source in plan.sources.items():
        lines += _source(objects, source, plan.analysis.needed[name])
    return lines


def _source(objects: Objects, source: Source, needed: frozenset[str] | None) -> list[str]:
    names = [column.name for column in source.columns]
    tasks = tasks_of(objects.spark, source)
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


def _spark_plan(objects: Objects, query: str, start: int) -> list[str]:
    frame = select(objects, query, start)
    text = frame._jdf.queryExecution().simpleString()  # noqa: SLF001 what explain() prints
    return str(text).rstrip().split("\n")
