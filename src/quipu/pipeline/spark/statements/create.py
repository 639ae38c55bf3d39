"""CREATE and DROP: change the catalog on disk first, then the live catalog."""

from quipu.model.nearest import nearest
from quipu.pipeline.catalog import CatalogEntry
from quipu.pipeline.command_result import CommandResult
from quipu.pipeline.plan.connections import check_connection
from quipu.pipeline.plan.external_facts import ExternalFacts, RecordingFacts
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.plan.views import dropped, refuse_cycle, used
from quipu.pipeline.spark.queries.errors import explained
from quipu.pipeline.spark.sinks.sink import plan_sink
from quipu.pipeline.spark.statements.live_catalog import LiveCatalog
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.printer import canonical
from quipu.pipeline.sql.query_names import quote_names
from quipu.pipeline.sql.statements import (
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    Drop,
    Name,
    ObjectKind,
)

Create = CreateConnection | CreateSource | CreateView | CreateSink

_KINDS = {
    CreateConnection: ObjectKind.CONNECTION, CreateSource: ObjectKind.SOURCE,
    CreateView: ObjectKind.VIEW, CreateSink: ObjectKind.SINK,
}


def create(
    live: LiveCatalog, statement: Create, text: str, facts: ExternalFacts,
) -> CommandResult:
    """Execute a CREATE statement."""
    kind = _KINDS[type(statement)]
    there = live.catalog.find(statement.name.text)
    if there is not None:
        if statement.if_not_exists:
            return CommandResult(f"{there.kind.value} {there.name} already exists")
        replaces = isinstance(statement, CreateView) and statement.or_replace
        if not replaces or there.kind is not ObjectKind.VIEW:
            raise SqlError(f'{there.kind.value.lower()} "{there.name}" already exists',
                           statement.name.span,
                           hint=f"DROP {there.kind.value} {there.name}, or give another name")
    entry = _entry(live, statement, text, facts)
    if there is not None:
        _refuse_users(live, statement.name)
        live.remove(there.name)
    live.catalog.put(entry)
    live.add(entry, statement)
    live.start(entry.name)
    return CommandResult(f"CREATE {kind.value}")


def _entry(live: LiveCatalog, statement: Create, text: str, facts: ExternalFacts) -> CatalogEntry:
    """The entry of the catalog for a statement; raises SqlError if the statement is wrong."""
    kind, name = _KINDS[type(statement)], statement.name.text
    written = canonical(statement, secrets=True)
    match statement:
        case CreateConnection():
            check_connection(statement)
            return CatalogEntry(kind, name, written)
        case CreateSource():
            recording = RecordingFacts(facts)
            plan_source(statement, text, recording, live.connections)
            recorded = {**recording.recorded, "folder": live.new_folder(name)}
            return CatalogEntry(kind, name, written, _connections(statement),
                                statement.materialized, recorded)
        case CreateView():
            return _view_entry(live, statement, written)
        case CreateSink():
            if statement.view.text not in (*live.sources, *live.views):
                raise unknown(live, statement.view, ObjectKind.SOURCE, ObjectKind.VIEW)
            plan = plan_sink(statement, live.plan_of(statement.view.text), live.connections)
            return CatalogEntry(kind, name, written, plan.uses,
                         facts={"folder": live.new_folder(name)})


def _connections(statement: CreateSource) -> tuple[str, ...]:
    found = [statement.kafka.connection]
    for each in (statement.key_format, statement.value_format):
        registry = getattr(each, "registry", None)
        found.append(None if registry is None else registry.connection)
    return tuple(dict.fromkeys(name.text for name in found if name is not None))


def _view_entry(live: LiveCatalog, statement: CreateView, written: str) -> CatalogEntry:
    name = statement.name.text
    query = quote_names(statement.query)
    readable = [each for each in (*live.sources, *live.views) if each != name]
    uses = used(query, readable)
    refuse_cycle(statement.name, used(query, [*readable, name]), live.catalog.graph())
    start = statement.query_span.start
    if statement.materialized:
        plan = live.plan_view(name, query, start=start)
        if not plan.sources:
            raise SqlError("A materialized view needs a source to read", statement.query_span,
                           hint="leave out MATERIALIZED")
    else:
        with explained(query, start):
            live.reading_scope.analyzed(query)
    facts = {"folder": live.new_folder(name)}
    return CatalogEntry(ObjectKind.VIEW, name, written, uses, statement.materialized, facts)


def _refuse_users(live: LiveCatalog, name: Name) -> None:
    """Raise SqlError if other objects read an object: their tables were created for its columns."""
    users = [each for each, uses in live.catalog.graph().items() if name.text in uses]
    if users:
        raise SqlError(f"{name.text} is needed by {', '.join(users)}", name.span,
                       hint=f"drop {', '.join(users)} first")


def drop(live: LiveCatalog, statement: Drop) -> CommandResult:
    """Execute a DROP statement; with CASCADE it also drops the objects that need the object."""
    name, kind = statement.name, statement.kind
    there = live.catalog.find(name.text)
    if there is None or there.kind is not kind:
        if statement.if_exists and there is None:
            return CommandResult(f"there is no {kind.value.lower()} {name.text}")
        raise unknown(live, name, kind)
    gone = dropped(name, live.catalog.graph(), cascade=statement.cascade)
    for each in gone:
        live.stop(each)
    live.catalog.remove(gone)
    for each in gone:
        live.remove(each)
    return CommandResult(f"DROP {kind.value}")


def unknown(live: LiveCatalog, name: Name, *kinds: ObjectKind) -> SqlError:
    """The error for a name of no object of these kinds, or of an object that cannot be used."""
    there = live.catalog.find(name.text)
    if name.text in live.broken:
        return SqlError(f"{name.text} cannot be used: {live.broken[name.text]}", name.span,
                        hint="drop it, and create it again")
    wanted = " or ".join(kind.value.lower() for kind in kinds)
    if there is not None:
        return SqlError(f"{name.text} is a {there.kind.value.lower()}, not a {wanted}", name.span)
    known = [entry.name for entry in live.catalog.entries() if entry.kind in kinds]
    near = nearest(name.text, known)
    hint = f"did you mean {near}?" if near else "SHOW SOURCES and SHOW VIEWS list all"
    return SqlError(f'There is no {wanted} "{name.text}"', name.span, hint=hint)
