"""Avro schemas: parses JSON text to a tree of nodes, and finds the columns of nodes.

    record, at the top     a column per field           decimal            numeric(p,s)
    anything else          one column `?column?`        date               date
    null or X              X, nullable                  time-millis/-micros    text, 12:30:00.000
    several others         record, a field per branch   timestamp-*        timestamptz
    record                 record                       local-timestamp-*  timestamp
    array, map             list, map                    uuid               text
    enum                   text                         fixed              bytes

Debezium's converter marks times with `connect.name` where Avro has no logical type for them; those
marks are used too.  A logical type that is not known is ignored.  A message that is null as a whole
counts as absent.

Not here: schema resolution between writer and reader (program.py).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from quipu.pipeline.types import PRECISION_MAX, TIMESTAMP, TIMESTAMPTZ, Column

ONLY_COLUMN: Final = "?column?"  # the name of the one column of a schema that is no record

TEXT_SIZE_MAX: Final = 1 << 20
DEPTH_MAX: Final = 64
NODES_MAX: Final = 10_000
UUID_SIZE: Final = 16
COLUMNS_MAX: Final = 10_000  # with inner ones: a type used by name in many places counts often

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NO_DEFAULT: Final = object()

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.string(), ("long", "time-micros"): pa.string(),
    **{("long", f"timestamp-{unit}"): TIMESTAMPTZ for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): TIMESTAMP for unit in ("millis", "micros", "nanos")},
    ("string", "uuid"): pa.string(), ("fixed", "uuid"): pa.string(),
}
_CONNECT: Final[Mapping[str, str]] = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis", "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
}

Json = object


class AvroSchemaError(ValueError):
    """The text is no schema, or its types cannot be columns; the message says why."""


@dataclass(eq=False)
class SchemaField:
    """One field of a record."""

    name: str
    type: "SchemaNode"
    default: Json = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class SchemaNode:
    """One type.  Which attributes are used depends on its kind; a record may contain itself."""

    kind: str  # one of PRIMITIVES, or record, enum, fixed, array, map, union
    name: str = ""  # record, enum, fixed: in full
    logical: str = ""  # the logical type, if it fits `kind`
    precision: int = 0
    scale: int = 0
    size: int = 0  # fixed
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    aliases: tuple[str, ...] = ()  # in full
    inner: tuple["SchemaNode", ...] = ()  # array: the item; map: the value; union: the branches
    fields: list[SchemaField] = field(default_factory=list)

    @property
    def short_name(self) -> str:
        """A named type's name without its namespace; else the kind."""
        return self.name.rpartition(".")[2] or self.kind

    @property
    def title(self) -> str:
        """The name of the type in error messages."""
        return self.kind.capitalize()

    def alternatives(self) -> list["SchemaNode"]:
        """A union's branches except null; any other type itself."""
        branches = self.inner if self.kind == "union" else (self,)
        return [branch for branch in branches if branch.kind != "null"]

    @property
    def is_nullable(self) -> bool:
        return self.kind == "null" or (
            self.kind == "union" and any(each.kind == "null" for each in self.inner))


def parse(text: str) -> SchemaNode:
    """Parse a schema; every name in it must be defined in it."""
    return _SchemaParser().node(_json(text), "", 0)


def self_contained(text: str, references: Sequence[str]) -> str:
    """The schema with types of other schemas written out where they are first used."""
    if not references:
        return text
    elsewhere: dict[str, Json] = {}
    for reference in references:
        elsewhere |= _definitions(_json(reference), "")
    return json.dumps(_Inliner(elsewhere).written_out(_json(text), "", 0))


def columns_of(node: SchemaNode) -> tuple[Column, ...]:
    """The columns of a reader's schema."""
    typer = _Typer()
    branches = node.alternatives()
    if len(branches) == 1 and branches[0].kind == "record":
        kind = typer.arrow(branches[0])
        return tuple(
            Column(each.name, kind.field(index).type, node.is_nullable or each.type.is_nullable)
            for index, each in enumerate(branches[0].fields))
    return (Column(ONLY_COLUMN, typer.arrow(node), node.is_nullable),)


def branch_names(branches: Sequence[SchemaNode]) -> list[str]:
    """Names for the branches of a union: short ones if those are unique."""
    short = [branch.short_name for branch in branches]
    if len(set(short)) == len(short):
        return short
    return [branch.name or branch.kind for branch in branches]


class _Typer:
    """Finds the Arrow types of nodes; counts them, and detects recursive records."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[SchemaNode] = []

    def arrow(self, node: SchemaNode, depth: int = 0) -> pa.DataType:
        self._count += 1
        if self._count > COLUMNS_MAX:
            raise AvroSchemaError(f"the schema has more than {COLUMNS_MAX} columns")
        if depth > DEPTH_MAX:  # types used by name nest deeper than the text that defines them
            raise AvroSchemaError(f"the schema nests deeper than {DEPTH_MAX}")
        match node.kind:
            case "record":
                return self._record(node, depth)
            case "array":
                return pa.list_(self.arrow(node.inner[0], depth + 1))
            case "map":
                return pa.map_(pa.string(), self.arrow(node.inner[0], depth + 1))
            case "union" if len(node.alternatives()) == 1:
                return self.arrow(node.alternatives()[0], depth)
            case "union" if node.alternatives():
                branches = node.alternatives()
                return pa.struct([(name, self.arrow(branch, depth + 1)) for name, branch
                                  in zip(branch_names(branches), branches, strict=True)])
            case "null" | "union":
                raise AvroSchemaError("a type that is always null has no column")
        if node.logical == "decimal":
            if node.precision > PRECISION_MAX:
                raise AvroSchemaError(f"a decimal of {node.precision} digits: numeric has at "
                                      f"most {PRECISION_MAX}")
            return pa.decimal128(node.precision, node.scale)
        return _LOGICAL.get((node.kind, node.logical), _PLAIN[node.kind])

    def _record(self, node: SchemaNode, depth: int) -> pa.DataType:
        if any(node is each for each in self._open):
            namespace, _, name = node.name.rpartition(".")
            raise AvroSchemaError(f"Recursive types are not supported: {namespace}.{name}")
        if not node.fields:
            raise AvroSchemaError(f"record {node.short_name!r} has no fields")
        self._open.append(node)
        kind = pa.struct([(each.name, self.arrow(each.type, depth + 1))
                          for each in node.fields])
        self._open.pop()
        return kind


class _SchemaParser:
    """JSON to nodes; remembers the names that were defined."""

    def __init__(self) -> None:
        self._named: dict[str, SchemaNode] = {}
        self._count = 0

    def node(self, schema: Json, namespace: str, depth: int) -> SchemaNode:
        self._count += 1
        if depth > DEPTH_MAX or self._count > NODES_MAX:
            raise AvroSchemaError(f"the schema nests deeper than {DEPTH_MAX}, or has more than "
                                  f"{NODES_MAX} types")
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if not isinstance(schema, dict):
            raise AvroSchemaError(f"a type is a name, a list or an object, not {schema!r:.50}")
        kind = schema.get("type")
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._defined(schema, namespace, depth)
            case "array" | "map":
                inside = _member(schema, "items" if kind == "array" else "values")
                return SchemaNode(kind, inner=(self.node(inside, namespace, depth + 1),))
            case str() if kind in PRIMITIVES:
                node = SchemaNode(kind)
                _annotate(node, schema)
                return node
        return self.node(_member(schema, "type"), namespace, depth + 1)  # {"type": {…}}

    def _by_name(self, name: str, namespace: str) -> SchemaNode:
        if name in PRIMITIVES:
            return SchemaNode(name)
        for full in (_full(name, namespace), name):  # then the one without namespace
            if full in self._named:
                return self._named[full]
        raise AvroSchemaError(f"type {name!r:.200} is not defined")

    def _union(self, schema: list[Json], namespace: str, depth: int) -> SchemaNode:
        branches = tuple(self.node(each, namespace, depth + 1) for each in schema)
        if any(branch.kind == "union" for branch in branches):
            raise AvroSchemaError("a union directly inside a union")
        names = [branch.name or branch.kind for branch in branches]
        if not branches or len(set(names)) < len(names):
            raise AvroSchemaError("a union needs branches, each of another type")
        return SchemaNode("union", inner=branches)

    def _defined(self, schema: Mapping[str, Json], namespace: str, depth: int) -> SchemaNode:
        full, namespace = _own_name(schema, namespace)
        kind = "record" if schema["type"] == "error" else str(schema["type"])
        if full in self._named:
            raise AvroSchemaError(f"type {full!r} is defined twice")
        aliases = tuple(_full(alias, namespace) for alias in _texts(schema, "aliases"))
        node = self._named[full] = SchemaNode(kind, full, aliases=aliases)
        if kind == "record":
            fields = schema.get("fields")
            if not isinstance(fields, list):
                raise AvroSchemaError(f"record {full!r} needs a list of fields")
            node.fields = [self._field(each, namespace, depth) for each in fields]
            names = [each.name for each in node.fields]
            if len(set(names)) < len(names):
                raise AvroSchemaError(f"record {full!r} has two fields of one name")
        elif kind == "enum":
            node.symbols = tuple(_texts(schema, "symbols"))
            if not node.symbols or len(set(node.symbols)) < len(node.symbols):
                raise AvroSchemaError(f"enum {full!r} needs symbols, each once")
            default = schema.get("default")
            if default is not None and default not in node.symbols:
                raise AvroSchemaError(f"enum {full!r} has a default that is none of its symbols")
            node.default_symbol = default if isinstance(default, str) else None
        else:
            node.size = _whole(schema, "size", most=TEXT_SIZE_MAX)
            _annotate(node, schema)
        return node

    def _field(self, schema: Json, namespace: str, depth: int) -> SchemaField:
        if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
            raise AvroSchemaError(f"a field is an object with a name, not {schema!r:.50}")
        kind = _member(schema, "type")
        node = self.node(kind, namespace, depth + 1)
        if isinstance(kind, str) and kind in PRIMITIVES:
            _annotate(node, schema)  # some writers put the logical type beside the name
        return SchemaField(schema["name"], node, schema.get("default", NO_DEFAULT),
                     tuple(_texts(schema, "aliases")))


class _Inliner:
    """Copies a schema, and puts definitions from elsewhere where their names are first used."""

    def __init__(self, elsewhere: Mapping[str, Json]) -> None:
        self._elsewhere = elsewhere
        self._defined: set[str] = set()

    def written_out(self, schema: Json, namespace: str, depth: int) -> Json:
        if depth > 2 * DEPTH_MAX:
            raise AvroSchemaError(f"the schema nests deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            return [self.written_out(each, namespace, depth + 1) for each in schema]
        if isinstance(schema, str):
            for full in (_full(schema, namespace), schema):
                if schema in PRIMITIVES or full in self._defined:
                    return schema
                if full in self._elsewhere:
                    return self.written_out(self._elsewhere[full], "", depth + 1)
            return schema
        if not isinstance(schema, dict):
            return schema
        copy = dict(schema)
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            full, namespace = _own_name(schema, namespace)
            self._defined.add(full)
        if isinstance(schema.get("fields"), list):
            copy["fields"] = [
                each | {"type": self.written_out(each.get("type"), namespace, depth + 1)}
                if isinstance(each, dict) else each for each in schema["fields"]]
        inside = {"array": "items", "map": "values"}.get(str(schema.get("type")))
        if inside is None and not isinstance(schema.get("type"), str):
            inside = "type"
        if inside is not None:
            copy[inside] = self.written_out(schema.get(inside), namespace, depth + 1)
        return copy


def _definitions(schema: Json, namespace: str, depth: int = 0) -> dict[str, Json]:
    """Every named type in a schema, by its full name, with that name in its text."""
    if depth > DEPTH_MAX:
        raise AvroSchemaError(f"the schema nests deeper than {DEPTH_MAX}")
    found: dict[str, Json] = {}
    if isinstance(schema, dict):
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            full, namespace = _own_name(schema, namespace)
            found[full] = schema | {"name": full, "namespace": namespace}
        for inside in _inside(schema):
            found |= _definitions(inside, namespace, depth + 1)
    elif isinstance(schema, list):
        for each in schema:
            found |= _definitions(each, namespace, depth + 1)
    return found


def _inside(schema: Mapping[str, Json]) -> Iterator[Json]:
    fields = schema.get("fields")
    for each in fields if isinstance(fields, list) else ():
        if isinstance(each, dict):
            yield each.get("type")
    for name in ("items", "values", "type"):
        if not isinstance(schema.get(name), str):
            yield schema.get(name)


def _json(text: str) -> Json:
    if len(text) > TEXT_SIZE_MAX:
        raise AvroSchemaError(f"the schema is longer than {TEXT_SIZE_MAX} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.strip().replace(".", "").replace("_", "").isalnum():
            return text.strip()  # a bare name, as some registries give it
        raise AvroSchemaError(f"the schema is not JSON: {error}") from None


def _own_name(schema: Mapping[str, Json], namespace: str) -> tuple[str, str]:
    """The full name of the type that is defined here, and the namespace inside it."""
    name, own = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str) or not name:
        raise AvroSchemaError(f"a type of kind {schema.get('type')} needs a name")
    if isinstance(own, str):
        namespace = own
    full = _full(name, namespace)
    return full, full.rpartition(".")[0]


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _member(schema: Mapping[str, Json], name: str) -> Json:
    if name not in schema:
        raise AvroSchemaError(f"a type lacks its {name!r}")
    return schema[name]


def _texts(schema: Mapping[str, Json], name: str) -> list[str]:
    value = schema.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise AvroSchemaError(f"{name!r} is a list of names")
    return value


def _whole(schema: Mapping[str, Json], name: str, *, most: int) -> int:
    value = schema.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise AvroSchemaError(f"{name!r} is a whole number from 0 to {most}, not {value!r:.50}")
    return value


def _annotate(node: SchemaNode, schema: Mapping[str, Json]) -> None:
    """Set a node's logical type; one that does not fit its kind is ignored."""
    logical = schema.get("logicalType", _CONNECT.get(str(schema.get("connect.name", ""))))
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision > 0:
            node.logical, node.precision, node.scale = "decimal", precision, scale
    elif (isinstance(logical, str) and (node.kind, logical) in _LOGICAL
          and (node.kind != "fixed" or node.size == UUID_SIZE)):
        node.logical = logical
