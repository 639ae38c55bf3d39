"""Arrow schemas and batches for Spark's DataFrames: every column may be NULL."""

import pyarrow as pa


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, which may all be NULL, as may the fields of their records.

    The fields of a NULL record are NULL, which Arrow refuses in a field that is not nullable.
    """
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(each) for each in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field).type)
    return pa.field(field.name, kind)


def with_nullable_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch with a schema in which every column may be NULL."""
    return batch.cast(nullable(batch.schema))


def needed_columns(schema: pa.Schema, needed: frozenset[str]) -> list[str]:
    """The needed columns in order; if none is, the smallest one, so that rows can be counted."""
    found = [name for name in schema.names if name in needed]
    return found or [min(schema, key=_width).name]


def _width(field: pa.Field) -> int:
    return field.type.bit_width if pa.types.is_primitive(field.type) else 1_000
