"""Columns and their types: the type names of SQL, and the Arrow types that hold the values.

    text     string                  date          date32
    bytes    binary                  timestamp     timestamp[us]         (without time zone)
    boolean  bool                    timestamptz   timestamp[us, UTC]
    smallint int16                   numeric(p,s)  decimal128(p, s)
    integer  int32                   uuid, json    string
    bigint   int64                   type[]        list
    real     float                   record(n t)   struct
    double   double
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

NUMERIC = (38, 9)  # precision and scale if none are given
PRECISION_MAX = 38
TIMESTAMPTZ = pa.timestamp("us", tz="UTC")
TIMESTAMP = pa.timestamp("us")
MILLIS_MIN = -62_135_596_800_000  # 0001-01-01, the first day that SQL can show
MILLIS_MAX = 253_402_300_799_999  # 9999-12-31, the last day that SQL can show

_SIMPLE: dict[str, pa.DataType] = {
    "text": pa.string(), "string": pa.string(), "varchar": pa.string(),
    "bytes": pa.binary(), "bytea": pa.binary(), "binary": pa.binary(),
    "boolean": pa.bool_(), "bool": pa.bool_(),
    "smallint": pa.int16(), "int2": pa.int16(),
    "integer": pa.int32(), "int": pa.int32(), "int4": pa.int32(),
    "bigint": pa.int64(), "int8": pa.int64(), "long": pa.int64(),
    "real": pa.float32(), "float4": pa.float32(), "float": pa.float32(),
    "double": pa.float64(), "double precision": pa.float64(), "float8": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP, "timestamptz": TIMESTAMPTZ,
    "timestamp without time zone": TIMESTAMP, "timestamp with time zone": TIMESTAMPTZ,
    "uuid": pa.string(), "json": pa.string(), "jsonb": pa.string(),
}


class Column(NamedTuple):
    """One column of a source, a key or a value."""

    name: str
    type: pa.DataType
    nullable: bool = True

    @property
    def field(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type, self.nullable)


class UnknownType(ValueError):
    """No column can have this type; the message is the type's name."""


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of several columns."""
    return pa.schema([column.field for column in columns])


def simple_names() -> list[str]:
    """Every name of a type without arguments, for suggestions."""
    return [*_SIMPLE, "numeric", "decimal"]


def arrow_type(name: str, arguments: Sequence[int] = ()) -> pa.DataType:
    """The Arrow type of a SQL type name; names are not case-sensitive."""
    key = re.sub(r"\s+", " ", name.strip().lower())
    if key in ("numeric", "decimal"):
        precision, scale = _numeric(arguments)
        return pa.decimal128(precision, scale)
    if key == "varchar" and len(arguments) == 1:
        return pa.string()
    if arguments or key not in _SIMPLE:
        wanted = f"{name}({', '.join(map(str, arguments))})" if arguments else name
        raise UnknownType(wanted)
    return _SIMPLE[key]


def _numeric(arguments: Sequence[int]) -> tuple[int, int]:
    precision, scale = NUMERIC
    if arguments:
        precision, scale = (*arguments, 0)[:2]
    if not (1 <= precision <= PRECISION_MAX and 0 <= scale <= precision and len(arguments) <= 2):
        raise UnknownType(f"numeric({', '.join(map(str, arguments))})")
    return precision, scale


def sql_name(kind: pa.DataType) -> str:
    """The SQL name of an Arrow type."""
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{field.name} {sql_name(field.type)}" for field in kind)
        return f"record({inner})"
    if pa.types.is_list(kind):
        return f"{sql_name(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"map({sql_name(kind.key_type)}, {sql_name(kind.item_type)})"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    for name, simple in _SIMPLE.items():
        if simple.equals(kind):
            return name
    raise UnknownType(str(kind))
