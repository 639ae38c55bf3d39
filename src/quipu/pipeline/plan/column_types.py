"""Arrow types of the type names in a statement."""

import pyarrow as pa

from quipu.model.nearest import nearest
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.printer import type_text
from quipu.pipeline.sql.statements import TypeName
from quipu.pipeline.types import UnknownType, arrow_type, simple_names


def resolve_type(kind: TypeName) -> pa.DataType:
    """The Arrow type of a type name; raises SqlError with the nearest name if there is none."""
    inner = [resolve_type(part) for _, part in kind.parts]
    if kind.name == "list" and kind.parts:
        return pa.list_(inner[0])
    if kind.name == "map" and kind.parts:
        return pa.map_(*inner)
    if kind.parts:
        names = [name for name, _ in kind.parts]
        if len(set(names)) < len(names):
            raise SqlError("A record has two fields of one name", kind.span,
                           hint="give every field its own name")
        return pa.struct(list(zip(names, inner, strict=True)))
    try:
        return arrow_type(kind.name, kind.arguments)
    except UnknownType:
        near = nearest(kind.name, simple_names())
        hint = (f"did you mean {near}?" if near and near != kind.name
                else "there are text, bytes, boolean, integer, bigint, double, numeric(p, s), "
                     "date, timestamp, timestamptz, uuid, json, type[] and record(name type, …)")
        raise SqlError(f"There is no type {type_text(kind)}", kind.span, hint=hint) from None
