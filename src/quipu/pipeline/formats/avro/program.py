"""Compiles a writer's and a reader's schema to one list of steps that reads a message.

A step reads one value that the writer wrote and puts it into a *sink*, which is one Arrow array of
the reader's columns, or skips it.  Avro's schema resolution is done here, once per pair of schemas:
order and aliases of fields, defaults, promotions, unions.  The walk (`_walk.pyx`, and
`_walk_pure.py`, its twin) uses only bytes and steps, and no schema.

    times        are converted between their units; a plain number has the reader's unit
    decimals     a value must fit the reader's precision
    unknown      a branch or a symbol that the reader lacks is an error of the message

Not here: which reader may read which writer (compatibility.py).
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from quipu.pipeline.formats.avro.compatibility import (
    Judge,
    fields_by_name,
    mismatch,
    missing,
    scales_agree,
    writer_field,
)
from quipu.pipeline.formats.avro.defaults import default_of
from quipu.pipeline.formats.avro.schema import (
    NO_DEFAULT,
    AvroSchemaError,
    SchemaField,
    SchemaNode,
    columns_of,
)
from quipu.pipeline.formats.avro.steps import (
    STEPS_MAX,
    ArrowKind,
    ArrowSink,
    Op,
    ReadProgram,
    ReadStep,
    SinkLayout,
)
from quipu.pipeline.types import schema_of

_FACTORS: Final[Mapping[str, int]] = {"millis": 1000, "micros": 1, "nanos": -1000}
_PROMOTIONS: Final[Mapping[tuple[str, str], Op]] = {
    ("boolean", "boolean"): Op.BOOLEAN,
    ("int", "int"): Op.INT_I32, ("int", "long"): Op.INT_I64,
    ("int", "float"): Op.INT_F32, ("int", "double"): Op.INT_F64,
    ("long", "long"): Op.LONG_I64, ("long", "float"): Op.LONG_F32, ("long", "double"): Op.LONG_F64,
    ("float", "float"): Op.FLOAT_F32, ("float", "double"): Op.FLOAT_F64,
    ("double", "double"): Op.DOUBLE_F64,
    ("string", "string"): Op.TEXT, ("bytes", "string"): Op.TEXT,
    ("string", "bytes"): Op.BLOB, ("bytes", "bytes"): Op.BLOB,
}
_SIZES: Final[Mapping[str, int]] = {"null": 0, "float": 4, "double": 8}


def layout_of(reader: SchemaNode) -> SinkLayout:
    """The sinks of a reader's schema."""
    branches = reader.alternatives()
    sinks: list[ArrowSink] = []
    _add_sinks(pa.struct(list(schema_of(columns_of(reader)))), sinks)
    return SinkLayout(tuple(sinks), len(branches) == 1 and branches[0].kind == "record")


def compile_program(writer: SchemaNode, reader: SchemaNode, layout: SinkLayout) -> ReadProgram:
    """The steps that read a writer's messages for this reader."""
    try:
        return _Compiler(layout).program(writer, reader)
    except AvroSchemaError as error:
        return ReadProgram((), str(error))
    except RecursionError:  # by name, a writer's types can nest without a bound
        return ReadProgram((), "the writer's schema nests too deep")


def _add_sinks(kind: pa.DataType, sinks: list[ArrowSink]) -> int:
    index = len(sinks)
    if pa.types.is_struct(kind):
        inner, sort = [each.type for each in kind], ArrowKind.STRUCT
    elif pa.types.is_map(kind):
        inner, sort = [kind.key_type, kind.item_type], ArrowKind.LIST
    elif pa.types.is_list(kind):
        inner, sort = [kind.value_type], ArrowKind.LIST
    else:
        inner, sort = [], _sink_kind(kind)
    sinks.append(ArrowSink(sort, kind))
    children = tuple(_add_sinks(each, sinks) for each in inner)
    sinks[index] = ArrowSink(sort, kind, children)
    return index


def _sink_kind(kind: pa.DataType) -> ArrowKind:
    if pa.types.is_boolean(kind):
        return ArrowKind.BIT
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return ArrowKind.BLOB
    if pa.types.is_decimal(kind):
        return ArrowKind.I128
    if pa.types.is_floating(kind):
        return ArrowKind.F32 if kind.bit_width == 32 else ArrowKind.F64
    return ArrowKind.I32 if kind.bit_width == 32 else ArrowKind.I64


class _Compiler:
    """Makes the steps of one pair of schemas."""

    def __init__(self, layout: SinkLayout) -> None:
        self._layout = layout
        self._sinks = layout.sinks
        self._steps: list[ReadStep] = []
        self._skips: dict[int, int] = {}  # id of a record: its step, for records within themselves
        self._least: dict[int, int] = {}  # id of a record: its least size
        self._judge = Judge()

    def program(self, writer: SchemaNode, reader: SchemaNode) -> ReadProgram:
        root = self._new()
        if self._layout.is_record:
            inner = self._read(writer, reader, 0, reader.short_name)
        else:
            column = self._read(writer, reader, self._sinks[0].children[0], reader.short_name)
            inner = self._add(ReadStep(Op.RECORD, 0, children=(column,)))
            if reader.is_nullable and writer.is_nullable:
                # A message that is null as a whole counts as absent.
                inner = self._null_at_the_top(writer, inner)
        self._steps[root] = self._steps[inner]
        return ReadProgram(tuple(self._steps))

    def _null_at_the_top(self, writer: SchemaNode, whole: int) -> int:
        if writer.kind == "null":
            return self._add(ReadStep(Op.NULL, 0))
        (column,) = self._steps[whole].children
        branches = []
        for branch, step in zip(writer.inner, self._steps[column].children, strict=True):
            if branch.kind == "null":
                branches.append(self._add(ReadStep(Op.NULL, 0)))
            else:
                branches.append(self._add(ReadStep(Op.RECORD, 0, children=(step,))))
        return self._add(ReadStep(Op.UNION, children=tuple(branches)))

    def _new(self) -> int:
        if len(self._steps) >= STEPS_MAX:
            raise AvroSchemaError(f"reading the writer's schema takes more than {STEPS_MAX} steps")
        self._steps.append(ReadStep(Op.FAIL))
        return len(self._steps) - 1

    def _add(self, step: ReadStep) -> int:
        index = self._new()
        self._steps[index] = step
        return index

    # -- reading --------------------------------------------------------------------------------

    def _read(self, writer: SchemaNode, reader: SchemaNode, sink: int, path: str) -> int:
        if writer.kind == "union":
            return self._add(ReadStep(Op.UNION, children=tuple(
                self._branch(branch, reader, sink, path) for branch in writer.inner)))
        if reader.kind == "union":
            return self._choice(writer, reader, sink, path)
        if writer.kind == reader.kind and writer.kind in ("record", "array", "map", "enum"):
            return self._same_kind(writer, reader, sink, path)
        return self._add(self._scalar(writer, reader, sink, path))

    def _branch(self, writer: SchemaNode, reader: SchemaNode, sink: int, path: str) -> int:
        """The step of a branch; one that cannot be read fails only the messages with it."""
        try:
            return self._read(writer, reader, sink, path)
        except AvroSchemaError as error:
            return self._add(ReadStep(Op.FAIL, texts=(str(error).encode(),)))

    def _choice(self, writer: SchemaNode, reader: SchemaNode, sink: int, path: str) -> int:
        chosen = self._judge.branch_of(writer, reader, path)
        if chosen is None:  # a branch of the same kind may be readable for some messages
            alike = [each for each in reader.inner if each.kind == writer.kind]
            if not alike:
                raise AvroSchemaError(mismatch(writer, reader, path))
            chosen = alike[0]
        if chosen.kind == "null":
            return self._add(ReadStep(Op.NULL, sink))
        branches = reader.alternatives()
        if len(branches) == 1:
            return self._read(writer, chosen, sink, path)
        place = next(index for index, each in enumerate(branches) if each is chosen)
        inner = self._read(writer, chosen, self._sinks[sink].children[place], path)
        return self._add(ReadStep(Op.CHOICE, sink, place, children=(inner,)))

    def _same_kind(self, writer: SchemaNode, reader: SchemaNode, sink: int, path: str) -> int:
        children = self._sinks[sink].children
        match writer.kind:
            case "record":
                return self._record(writer, reader, sink)
            case "array" | "map":
                inner = self._read(writer.inner[0], reader.inner[0], children[-1], path)
                op = Op.LIST if writer.kind == "array" else Op.MAP
                return self._add(ReadStep(op, sink, self._least_size(writer.inner[0]),
                                      children=(inner,)))
        return self._add(ReadStep(Op.ENUM, sink, texts=tuple(
            _symbol(symbol, reader) for symbol in writer.symbols)))

    def _record(self, writer: SchemaNode, reader: SchemaNode, sink: int) -> int:
        sinks = dict(zip((id(each) for each in reader.fields), self._sinks[sink].children,
                         strict=True))
        wanted: dict[int, SchemaField] = {}
        constants = []
        written = fields_by_name(writer)
        for field in reader.fields:
            source = writer_field(written, field)
            path = f"{reader.short_name}.{field.name}"
            if source is None:
                constants.append(self._default(field, sinks[id(field)], path))
            elif id(source) in wanted:
                raise AvroSchemaError(f"two reader fields are filled from `{source.name}`")
            else:
                wanted[id(source)] = field
        steps = []
        for source in writer.fields:
            found = wanted.get(id(source))
            if found is None:
                steps.append(self._skip(source.type))
            else:
                steps.append(self._read(source.type, found.type, sinks[id(found)],
                                        f"{reader.short_name}.{found.name}"))
        return self._add(ReadStep(Op.RECORD, sink, children=(*steps, *constants)))

    def _default(self, field: SchemaField, sink: int, path: str) -> int:
        """A step that reads a field's default in place of the message."""
        if field.default is NO_DEFAULT:
            raise AvroSchemaError(missing(path))
        kind, data = default_of(field, path)
        inner = self._read(kind, field.type, sink, path)
        return self._add(ReadStep(Op.CONSTANT, children=(inner,), texts=(data,)))

    def _scalar(self, writer: SchemaNode, reader: SchemaNode, sink: int, path: str) -> ReadStep:
        if writer.kind == reader.kind == "fixed":
            return self._fixed(writer, reader, sink, path)
        op = _PROMOTIONS.get((writer.kind, reader.kind))
        if op is None or not scales_agree(writer, reader):
            raise AvroSchemaError(mismatch(writer, reader, path))
        if reader.logical == "decimal":
            return ReadStep(Op.DECIMAL, sink, reader.precision)
        if reader.logical in ("time-millis", "time-micros"):
            unit = writer.logical or reader.logical
            return ReadStep(Op.TIME_MILLIS if unit == "time-millis" else Op.TIME_MICROS, sink)
        if op in (Op.INT_I64, Op.LONG_I64):
            return ReadStep(op, sink, _factor(writer, reader))
        return ReadStep(op, sink)

    @staticmethod
    def _fixed(writer: SchemaNode, reader: SchemaNode, sink: int, path: str) -> ReadStep:
        if writer.size != reader.size or not scales_agree(writer, reader):
            raise AvroSchemaError(mismatch(writer, reader, path))
        if reader.logical == "decimal":
            return ReadStep(Op.DECIMAL_FIXED, sink, reader.precision, writer.size)
        if reader.logical == "uuid":
            return ReadStep(Op.UUID_FIXED, sink)
        return ReadStep(Op.FIXED, sink, writer.size)

    # -- skipping -------------------------------------------------------------------------------

    def _skip(self, writer: SchemaNode) -> int:
        match writer.kind:
            case "int" | "long" | "enum":
                return self._add(ReadStep(Op.SKIP_VARINT))
            case "bytes" | "string":
                return self._add(ReadStep(Op.SKIP_BLOB))
            case "array" | "map":
                op = Op.SKIP_BLOCKS if writer.kind == "array" else Op.SKIP_PAIRS
                item = self._skip(writer.inner[0])
                return self._add(ReadStep(op, number=self._least_size(writer.inner[0]),
                                      children=(item,)))
            case "union":
                return self._add(ReadStep(Op.SKIP_UNION, children=tuple(
                    self._skip(branch) for branch in writer.inner)))
            case "record":
                return self._skip_record(writer)
            case "null":
                return self._add(ReadStep(Op.SKIP_NOTHING))
        size = writer.size if writer.kind == "fixed" else _SIZES.get(writer.kind, 1)
        return self._add(ReadStep(Op.SKIP_BYTES, number=size))

    def _skip_record(self, writer: SchemaNode) -> int:
        if id(writer) in self._skips:
            return self._skips[id(writer)]
        index = self._skips[id(writer)] = self._new()
        self._steps[index] = ReadStep(Op.SKIP_RECORD, children=tuple(
            self._skip(field.type) for field in writer.fields))
        return index

    def _least_size(self, writer: SchemaNode) -> int:
        """The least number of bytes of a value."""
        if writer.kind != "record":
            return writer.size if writer.kind == "fixed" else _SIZES.get(writer.kind, 1)
        if id(writer) not in self._least:
            self._least[id(writer)] = 0  # for a record within itself
            self._least[id(writer)] = sum(
                self._least_size(field.type) for field in writer.fields)
        return self._least[id(writer)]


def _symbol(symbol: str, reader: SchemaNode) -> bytes | None:
    if symbol in reader.symbols:
        return symbol.encode()
    return None if reader.default_symbol is None else reader.default_symbol.encode()


def _factor(writer: SchemaNode, reader: SchemaNode) -> int:
    """The factor from the writer's unit to microseconds; 1 for plain numbers."""
    if "timestamp" not in reader.logical:
        return 1
    unit = writer.logical if "timestamp" in writer.logical else reader.logical
    return _FACTORS[unit.rpartition("-")[2]]
