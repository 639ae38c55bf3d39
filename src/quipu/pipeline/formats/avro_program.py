"""What to do with a message: a writer's and a reader's schema made into one list of steps.

A step reads one value of the writer's and puts it into a *sink*, which is one Arrow array of the
reader's columns, or skips it.  Everything that Avro leaves to schema resolution is decided here,
once per pair of schemas: order and aliases of fields, defaults, promotions, unions.  The walk
(`_avro_walk.pyx`, and `_avro_walk_pure.py`, its twin) knows bytes and steps, and no schema.

    times        are converted between their units; a plain number has the reader's unit
    decimals     a value must fit the reader's precision
    unknown      a branch or a symbol that the reader lacks is an error of the message that has it

Not here: which reader may read which writer (avro_compatibility.py).
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from quipu.pipeline.formats.avro_compatibility import (
    Judge,
    fields_by_name,
    mismatch,
    missing,
    scales_agree,
    writer_field,
)
from quipu.pipeline.formats.avro_defaults import default_of
from quipu.pipeline.formats.avro_schema import (
    NO_DEFAULT,
    AvroSchemaError,
    Field,
    Node,
    columns_of,
)
from quipu.pipeline.formats.avro_steps import STEPS_MAX, Kind, Layout, Op, Program, Sink, Step
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


def layout_of(reader: Node) -> Layout:
    """The sinks of a reader's schema."""
    branches = reader.alternatives()
    sinks: list[Sink] = []
    _add_sinks(pa.struct(list(schema_of(columns_of(reader)))), sinks)
    return Layout(tuple(sinks), len(branches) == 1 and branches[0].kind == "record")


def compile_program(writer: Node, reader: Node, layout: Layout) -> Program:
    """The steps that read a writer's messages for this reader."""
    try:
        return _Compiler(layout).program(writer, reader)
    except AvroSchemaError as error:
        return Program((), str(error))
    except RecursionError:  # by name, a writer's types can nest without a bound
        return Program((), "the writer's schema nests too deep")


def _add_sinks(kind: pa.DataType, sinks: list[Sink]) -> int:
    index = len(sinks)
    if pa.types.is_struct(kind):
        inner, sort = [each.type for each in kind], Kind.STRUCT
    elif pa.types.is_map(kind):
        inner, sort = [kind.key_type, kind.item_type], Kind.LIST
    elif pa.types.is_list(kind):
        inner, sort = [kind.value_type], Kind.LIST
    else:
        inner, sort = [], _sink_kind(kind)
    sinks.append(Sink(sort, kind))
    children = tuple(_add_sinks(each, sinks) for each in inner)
    sinks[index] = Sink(sort, kind, children)
    return index


def _sink_kind(kind: pa.DataType) -> Kind:
    if pa.types.is_boolean(kind):
        return Kind.BIT
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return Kind.BLOB
    if pa.types.is_decimal(kind):
        return Kind.I128
    if pa.types.is_floating(kind):
        return Kind.F32 if kind.bit_width == 32 else Kind.F64
    return Kind.I32 if kind.bit_width == 32 else Kind.I64


class _Compiler:
    """Makes the steps of one pair of schemas."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sinks = layout.sinks
        self._steps: list[Step] = []
        self._skips: dict[int, int] = {}  # id of a record: its step, for records within themselves
        self._least: dict[int, int] = {}  # id of a record: its least size
        self._judge = Judge()

    def program(self, writer: Node, reader: Node) -> Program:
        root = self._new()
        if self._layout.is_record:
            inner = self._read(writer, reader, 0, reader.short_name)
        else:
            column = self._read(writer, reader, self._sinks[0].children[0], reader.short_name)
            inner = self._add(Step(Op.RECORD, 0, children=(column,)))
            if reader.is_nullable and writer.is_nullable:
                # At the top, null is no message.
                inner = self._null_at_the_top(writer, inner)
        self._steps[root] = self._steps[inner]
        return Program(tuple(self._steps))

    def _null_at_the_top(self, writer: Node, whole: int) -> int:
        if writer.kind == "null":
            return self._add(Step(Op.NULL, 0))
        (column,) = self._steps[whole].children
        branches = []
        for branch, step in zip(writer.inner, self._steps[column].children, strict=True):
            if branch.kind == "null":
                branches.append(self._add(Step(Op.NULL, 0)))
            else:
                branches.append(self._add(Step(Op.RECORD, 0, children=(step,))))
        return self._add(Step(Op.UNION, children=tuple(branches)))

    def _new(self) -> int:
        if len(self._steps) >= STEPS_MAX:
            raise AvroSchemaError(f"reading the writer's schema takes more than {STEPS_MAX} steps")
        self._steps.append(Step(Op.FAIL))
        return len(self._steps) - 1

    def _add(self, step: Step) -> int:
        index = self._new()
        self._steps[index] = step
        return index

    # -- reading --------------------------------------------------------------------------------

    def _read(self, writer: Node, reader: Node, sink: int, path: str) -> int:
        if writer.kind == "union":
            return self._add(Step(Op.UNION, children=tuple(
                self._branch(branch, reader, sink, path) for branch in writer.inner)))
        if reader.kind == "union":
            return self._choice(writer, reader, sink, path)
        if writer.kind == reader.kind and writer.kind in ("record", "array", "map", "enum"):
            return self._same_kind(writer, reader, sink, path)
        return self._add(self._scalar(writer, reader, sink, path))

    def _branch(self, writer: Node, reader: Node, sink: int, path: str) -> int:
        """A branch that cannot be read fails the messages that have it, not all of them."""
        try:
            return self._read(writer, reader, sink, path)
        except AvroSchemaError as error:
            return self._add(Step(Op.FAIL, texts=(str(error).encode(),)))

    def _choice(self, writer: Node, reader: Node, sink: int, path: str) -> int:
        chosen = self._judge.branch_of(writer, reader, path)
        if chosen is None:  # perhaps a branch can be read in part
            alike = [each for each in reader.inner if each.kind == writer.kind]
            if not alike:
                raise AvroSchemaError(mismatch(writer, reader, path))
            chosen = alike[0]
        if chosen.kind == "null":
            return self._add(Step(Op.NULL, sink))
        branches = reader.alternatives()
        if len(branches) == 1:
            return self._read(writer, chosen, sink, path)
        place = next(index for index, each in enumerate(branches) if each is chosen)
        inner = self._read(writer, chosen, self._sinks[sink].children[place], path)
        return self._add(Step(Op.CHOICE, sink, place, children=(inner,)))

    def _same_kind(self, writer: Node, reader: Node, sink: int, path: str) -> int:
        children = self._sinks[sink].children
        match writer.kind:
            case "record":
                return self._record(writer, reader, sink)
            case "array" | "map":
                inner = self._read(writer.inner[0], reader.inner[0], children[-1], path)
                op = Op.LIST if writer.kind == "array" else Op.MAP
                return self._add(Step(op, sink, self._least_size(writer.inner[0]),
                                      children=(inner,)))
        return self._add(Step(Op.ENUM, sink, texts=tuple(
            _symbol(symbol, reader) for symbol in writer.symbols)))

    def _record(self, writer: Node, reader: Node, sink: int) -> int:
        sinks = dict(zip((id(each) for each in reader.fields), self._sinks[sink].children,
                         strict=True))
        wanted: dict[int, Field] = {}
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
        return self._add(Step(Op.RECORD, sink, children=(*steps, *constants)))

    def _default(self, field: Field, sink: int, path: str) -> int:
        """A step that reads a field's default in place of the message."""
        if field.default is NO_DEFAULT:
            raise AvroSchemaError(missing(path))
        kind, data = default_of(field, path)
        inner = self._read(kind, field.type, sink, path)
        return self._add(Step(Op.CONSTANT, children=(inner,), texts=(data,)))

    def _scalar(self, writer: Node, reader: Node, sink: int, path: str) -> Step:
        if writer.kind == reader.kind == "fixed":
            return self._fixed(writer, reader, sink, path)
        op = _PROMOTIONS.get((writer.kind, reader.kind))
        if op is None or not scales_agree(writer, reader):
            raise AvroSchemaError(mismatch(writer, reader, path))
        if reader.logical == "decimal":
            return Step(Op.DECIMAL, sink, reader.precision)
        if reader.logical in ("time-millis", "time-micros"):
            unit = writer.logical or reader.logical
            return Step(Op.TIME_MILLIS if unit == "time-millis" else Op.TIME_MICROS, sink)
        if op in (Op.INT_I64, Op.LONG_I64):
            return Step(op, sink, _factor(writer, reader))
        return Step(op, sink)

    @staticmethod
    def _fixed(writer: Node, reader: Node, sink: int, path: str) -> Step:
        if writer.size != reader.size or not scales_agree(writer, reader):
            raise AvroSchemaError(mismatch(writer, reader, path))
        if reader.logical == "decimal":
            return Step(Op.DECIMAL_FIXED, sink, reader.precision, writer.size)
        if reader.logical == "uuid":
            return Step(Op.UUID_FIXED, sink)
        return Step(Op.FIXED, sink, writer.size)

    # -- skipping -------------------------------------------------------------------------------

    def _skip(self, writer: Node) -> int:
        match writer.kind:
            case "int" | "long" | "enum":
                return self._add(Step(Op.SKIP_VARINT))
            case "bytes" | "string":
                return self._add(Step(Op.SKIP_BLOB))
            case "array" | "map":
                op = Op.SKIP_BLOCKS if writer.kind == "array" else Op.SKIP_PAIRS
                item = self._skip(writer.inner[0])
                return self._add(Step(op, number=self._least_size(writer.inner[0]),
                                      children=(item,)))
            case "union":
                return self._add(Step(Op.SKIP_UNION, children=tuple(
                    self._skip(branch) for branch in writer.inner)))
            case "record":
                return self._skip_record(writer)
            case "null":
                return self._add(Step(Op.SKIP_NOTHING))
        size = writer.size if writer.kind == "fixed" else _SIZES.get(writer.kind, 1)
        return self._add(Step(Op.SKIP_BYTES, number=size))

    def _skip_record(self, writer: Node) -> int:
        if id(writer) in self._skips:
            return self._skips[id(writer)]
        index = self._skips[id(writer)] = self._new()
        self._steps[index] = Step(Op.SKIP_RECORD, children=tuple(
            self._skip(field.type) for field in writer.fields))
        return index

    def _least_size(self, writer: Node) -> int:
        """How many bytes a value takes at least."""
        if writer.kind != "record":
            return writer.size if writer.kind == "fixed" else _SIZES.get(writer.kind, 1)
        if id(writer) not in self._least:
            self._least[id(writer)] = 0  # what it counts as within itself
            self._least[id(writer)] = sum(
                self._least_size(field.type) for field in writer.fields)
        return self._least[id(writer)]


def _symbol(symbol: str, reader: Node) -> bytes | None:
    if symbol in reader.symbols:
        return symbol.encode()
    return None if reader.default_symbol is None else reader.default_symbol.encode()


def _factor(writer: Node, reader: Node) -> int:
    """From the written unit to microseconds; 1 for plain numbers."""
    if "timestamp" not in reader.logical:
        return 1
    unit = writer.logical if "timestamp" in writer.logical else reader.logical
    return _FACTORS[unit.rpartition("-")[2]]
