"""CREATE and DROP: into the catalog first, then alive."""

from quipu.model.nearest import nearest
from quipu.pipeline.catalog import Entry
from quipu.pipeline.plan.connections import check_connection
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.plan.views import dropped, refuse_cycle, used
from quipu.pipeline.plan.world import Remembering, World
from quipu.pipeline.spark.answers import Answer
from quipu.pipeline.spark.names import with_names
from quipu.pipeline.spark.objects import Objects
from quipu.pipeline.spark.query_errors import explained
from quipu.pipeline.spark.sinks import plan_sink
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.printer import canonical
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


def create(objects: Objects, statement: Create, text: str, world: World) -> Answer:
    """Make an object."""
    kind = _KINDS[type(statement)]
    there = objects.catalog.find(statement.name.text)
    if there is not None:
        if statement.if_not_exists:
            return Answer(f"{there.kind.value} {there.name} already exists")
        replaces = isinstance(statement, CreateView) and statement.or_replace
        if not replaces or there.kind is not ObjectKind.VIEW:
            raise SqlError(f'{there.kind.value.lower()} "{there.name}" already exists',
                           statement.name.span,
                           hint=f"DROP {there.kind.value} {there.name}, or give another name")
    entry = _entry(objects, statement, text, world)
    if there is not None:
        _refuse_users(objects, statement.name)
        objects.remove(there.name)
    objects.catalog.put(entry)
    objects.add(entry, statement)
    objects.start(entry.name)
    return Answer(f"CREATE {kind.value}")


def _entry(objects: Objects, statement: Create, text: str, world: World) -> Entry:
    """What the catalog remembers; every mistake is found here."""
    kind, name = _KINDS[type(statement)], statement.name.text
    written = canonical(statement, secrets=True)
    match statement:
        case CreateConnection():
            check_connection(statement)
            return Entry(kind, name, written)
        case CreateSource():
            remembering = Remembering(world)
            plan_source(statement, text, remembering, objects.connections)
            facts = {**remembering.facts, "folder": objects.new_folder(name)}
            return Entry(kind, name, written, _connections(statement), statement.materialized,
                         facts)
        case CreateView():
            return _view_entry(objects, statement, written)
        case CreateSink():
            if statement.view.text not in (*objects.sources, *objects.views):
                raise unknown(objects, statement.view, ObjectKind.SOURCE, ObjectKind.VIEW)
            plan = plan_sink(statement, objects.followed(statement.view.text), objects.connections)
            return Entry(kind, name, written, plan.uses,
                         facts={"folder": objects.new_folder(name)})


def _connections(statement: CreateSource) -> tuple[str, ...]:
    found = [statement.place.connection]
    for each in (statement.key_format, statement.value_format):
        registry = getattr(each, "registry", None)
        found.append(None if registry is None else registry.connection)
    return tuple(dict.fromkeys(name.text for name in found if name is not None))


def _view_entry(objects: Objects, statement: CreateView, written: str) -> Entry:
    name = statement.name.text
    query = with_names(statement.query)
    readable = [each for each in (*objects.sources, *objects.views) if each != name]
    uses = used(query, readable)
    refuse_cycle(statement.name, used(query, [*readable, name]), objects.catalog.graph())
    start = statement.query_span.start
    if statement.materialized:
        plan = objects.plan_view(name, query, start=start)
        if not plan.sources:
            raise SqlError("A materialized view needs a source to read", statement.query_span,
                           hint="leave out MATERIALIZED")
    else:
        with explained(query, start):
            objects.reading_scope.analyzed(query)
    facts = {"folder": objects.new_folder(name)}
    return Entry(ObjectKind.VIEW, name, written, uses, statement.materialized, facts)


def _refuse_users(objects: Objects, name: Name) -> None:
    """What others read stays as it is, for their tables were made for it."""
    users = [each for each, uses in objects.catalog.graph().items() if name.text in uses]
    if users:
        raise SqlError(f"{name.text} is needed by {', '.join(users)}", name.span,
                       hint=f"drop {', '.join(users)} first")


def drop(objects: Objects, statement: Drop) -> Answer:
    """Take an object away, with those that need it if CASCADE says so."""
    name, kind = statement.name, statement.kind
    there = objects.catalog.find(name.text)
    if there is None or there.kind is not kind:
        if statement.if_exists and there is None:
            return Answer(f"there is no {kind.value.lower()} {name.text}")
        raise unknown(objects, name, kind)
    gone = dropped(name, objects.catalog.graph(), cascade=statement.cascade)
    for each in gone:
        objects.stop(each)
    objects.catalog.remove(gone)
    for each in gone:
        objects.remove(each)
    return Answer(f"DROP {kind.value}")


def unknown(objects: Objects, name: Name, *kinds: ObjectKind) -> SqlError:
    """There is no such object, or it is something else."""
    there = objects.catalog.find(name.text)
    if name.text in objects.broken:
        return SqlError(f"{name.text} cannot be used: {objects.broken[name.text]}", name.span,
                        hint="drop it, and create it again")
    wanted = " or ".join(kind.value.lower() for kind in kinds)
    if there is not None:
        return SqlError(f"{name.text} is a {there.kind.value.lower()}, not a {wanted}", name.span)
    known = [entry.name for entry in objects.catalog.entries() if entry.kind in kinds]
    near = nearest(name.text, known)
    hint = f"did you mean {near}?" if near else "SHOW SOURCES and SHOW VIEWS list all"
    return SqlError(f'There is no {wanted} "{name.text}"', name.span, hint=hint)
