"""Checks whether a reader's schema can read a writer's messages, by Avro's schema resolution.

    resolution   fields by name, else by the reader's aliases; names of records, enums and fixed
                 types count only to choose between the branches of a union
    decimals     must agree in scale
"""

from collections.abc import Mapping
from typing import Final

from quipu.pipeline.formats.avro.schema import NO_DEFAULT, AvroSchemaError, SchemaField, SchemaNode

JUDGEMENTS_MAX: Final = 500_000

PROMOTIONS: Final = frozenset({  # (writer's type, reader's type) that can be read
    ("boolean", "boolean"), ("int", "int"), ("int", "long"), ("int", "float"), ("int", "double"),
    ("long", "long"), ("long", "float"), ("long", "double"), ("float", "float"),
    ("float", "double"), ("double", "double"), ("string", "string"), ("bytes", "string"),
    ("string", "bytes"), ("bytes", "bytes"),
})


def complaint(writer: SchemaNode, reader: SchemaNode) -> str | None:
    """Why a reader could not read everything that a writer may write; None if it can."""
    return Judge().complaint(writer, reader, reader.short_name)


class Judge:
    """Compares schemas; a pair of records is compared once, also if they are recursive.

    Unions are compared branch by branch, which is quadratic: more than JUDGEMENTS_MAX comparisons
    raise AvroSchemaError.
    """

    def __init__(self) -> None:
        self._judged: dict[tuple[int, int], str | None] = {}
        self._work = 0

    def complaint(self, writer: SchemaNode, reader: SchemaNode, path: str) -> str | None:
        self._work += 1
        if self._work > JUDGEMENTS_MAX:
            raise AvroSchemaError("the schemas are too large to be compared: that takes more than "
                                  f"{JUDGEMENTS_MAX} steps")
        if writer.kind == "union":
            found = (self.complaint(branch, reader, path) for branch in writer.inner)
            return next((each for each in found if each is not None), None)
        if reader.kind == "union":
            return None if self.branch_of(writer, reader, path) is not None else mismatch(
                writer, reader, path)
        if writer.kind != reader.kind:
            return None if (writer.kind, reader.kind) in PROMOTIONS and scales_agree(
                writer, reader) else mismatch(writer, reader, path)
        match writer.kind:
            case "record":
                return self._of_records(writer, reader)
            case "array" | "map":
                return self.complaint(writer.inner[0], reader.inner[0], path)
            case "enum" if reader.default_symbol is None:
                unknown = [each for each in writer.symbols if each not in reader.symbols]
                return f"Reader enum `{path}` lacks `{unknown[0]}`" if unknown else None
            case "fixed" if writer.size != reader.size:
                return (f"Writer schema has {writer.size} bytes, but reader schema has "
                        f"{reader.size} for field `{path}`")
        return None if scales_agree(writer, reader) else mismatch(writer, reader, path)

    def branch_of(self, writer: SchemaNode, reader: SchemaNode, path: str) -> SchemaNode | None:
        """The branch of a reader's union for a writer's type: by name, else by kind, else any."""
        fitting = [each for each in reader.inner if self.complaint(writer, each, path) is None]
        ranks: list[list[SchemaNode]] = [
            [each for each in fitting if each.kind == writer.kind and _same_name(writer, each)],
            [each for each in fitting if each.kind == writer.kind],
            fitting,
        ]
        return next((rank[0] for rank in ranks if rank), None)

    def _of_records(self, writer: SchemaNode, reader: SchemaNode) -> str | None:
        pair = (id(writer), id(reader))
        if pair in self._judged:
            return self._judged[pair]
        self._judged[pair] = None
        written = fields_by_name(writer)
        for field in reader.fields:
            path = f"{reader.short_name}.{field.name}"
            source = writer_field(written, field)
            if source is not None:
                found = self.complaint(source.type, field.type, path)
            else:
                found = missing(path) if field.default is NO_DEFAULT else None
            if found is not None:
                self._judged[pair] = found
                return found
        return None


def mismatch(writer: SchemaNode, reader: SchemaNode, path: str) -> str:
    return (f"Writer schema has type `{writer.title}`, but reader schema has type "
            f"`{reader.title}` for field `{path}`")


def missing(path: str) -> str:
    return f"Reader field `{path}` is not in the writer's schema, and has no default"


def fields_by_name(record: SchemaNode) -> dict[str, SchemaField]:
    """A record's fields, for `writer_field`."""
    return {each.name: each for each in record.fields}


def writer_field(written: Mapping[str, SchemaField], field: SchemaField) -> SchemaField | None:
    """The writer's field from which a reader's field is filled."""
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def _same_name(writer: SchemaNode, reader: SchemaNode) -> bool:
    names = {reader.name, *reader.aliases}
    return writer.name in names or writer.short_name in {
        name.rpartition(".")[2] for name in names if name}


def scales_agree(writer: SchemaNode, reader: SchemaNode) -> bool:
    """Is a decimal's scale the same for writer and reader, if the reader's type is a decimal?"""
    if reader.logical != "decimal":
        return True
    return writer.kind != "string" and (writer.logical != "decimal"
                                        or writer.scale == reader.scale)
