"""The steps of programs that read Avro, the Arrow sinks that they fill, the faults of messages.

`program.py` compiles schemas to steps; `_walk.pyx` and `_walk_pure.py`, its twin, run them.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import pyarrow as pa

from quipu.pipeline.formats.bounds import VALUES_MAX

NO_ID: Final = -1  # the program of messages without frames
EMPTY_ITEMS_MAX: Final = 1000  # of a block whose items take no bytes
FREE_VALUES_MAX: Final = 1 << 21  # of a block of messages: see `allowance`
UNITS_MAX: Final = 2 * VALUES_MAX  # of one message, or of several that are decoded together
STEPS_MAX: Final = 100_000
WALK_DEPTH_MAX: Final = 200  # of skipped values: only those may be of a recursive type


class ArrowKind(IntEnum):
    """Kinds of sinks."""

    BIT = 0
    I32 = 1
    I64 = 2
    F32 = 3
    F64 = 4
    I128 = 5
    BLOB = 6  # text or bytes
    STRUCT = 7
    LIST = 8  # a list has one child, a map two: keys and values


class ArrowSink(NamedTuple):
    """One Arrow array to fill."""

    kind: ArrowKind
    type: pa.DataType
    children: tuple[int, ...] = ()


class Op(IntEnum):
    """What a step does."""

    SKIP_NOTHING = 0
    SKIP_VARINT = 1
    SKIP_BYTES = 2  # number: how many
    SKIP_BLOB = 3
    SKIP_BLOCKS = 4  # child: an item; number: its least size
    SKIP_PAIRS = 5  # as blocks, with a text in front of each item
    SKIP_RECORD = 6
    SKIP_UNION = 7
    NULL = 8
    BOOLEAN = 9
    INT_I32 = 10
    INT_I64 = 11
    INT_F32 = 12
    INT_F64 = 13
    LONG_I64 = 14  # number: factor if positive, divisor if negative
    LONG_F32 = 15
    LONG_F64 = 16
    FLOAT_F32 = 17
    FLOAT_F64 = 18
    DOUBLE_F64 = 19
    TEXT = 20  # must be UTF-8
    BLOB = 21
    FIXED = 22  # number: size
    ENUM = 23  # texts: what each symbol becomes; None: the reader does not know it
    DECIMAL = 24  # number: precision
    DECIMAL_FIXED = 25  # number: precision; other: size
    UUID_FIXED = 26
    TIME_MILLIS = 27
    TIME_MICROS = 28
    RECORD = 29  # children in the writer's order
    LIST = 30  # child: an item; number: its least size
    MAP = 31  # as list
    UNION = 32  # child per branch
    CHOICE = 33  # child fills one of the sink's children, the number-th; the others are null
    CONSTANT = 34  # child reads texts[0] instead of the message
    FAIL = 35  # texts[0]: why


class ReadStep(NamedTuple):
    """One step; children are indexes into the program."""

    op: Op
    sink: int = -1
    number: int = 0
    other: int = 0
    children: tuple[int, ...] = ()
    texts: tuple[bytes | None, ...] = ()


class ReadProgram(NamedTuple):
    """Steps, the first of which reads a message; without steps, `fault` says why."""

    steps: tuple[ReadStep, ...]
    fault: str = ""


Code = object  # a program prepared by `load`; each of the two walks has a type of its own


class SinkLayout(NamedTuple):
    """The reader's sinks; the first is the record that holds all columns."""

    sinks: tuple[ArrowSink, ...]
    is_record: bool  # the columns are fields, not the one column of a type that is no record


class MessageFault(IntEnum):
    """Why a message could not be read."""

    SHORT_FRAME = 1
    MAGIC = 2
    NO_PROGRAM = 3
    ENDED = 4
    LONG_NUMBER = 5
    INT_RANGE = 6
    BOOLEAN = 7
    UTF8 = 8
    LENGTH = 9
    BRANCH = 10
    SYMBOL = 11
    UNKNOWN_SYMBOL = 12
    ITEMS = 13
    DECIMAL = 14
    TIME = 15
    TIMESTAMP = 16
    DEPTH = 17
    TOO_LARGE = 18
    FAILED = 19
    TRAILING = 20
    TOO_MANY = 21


FAULTS: Final = {
    MessageFault.ENDED: "the message ends within a value",
    MessageFault.LONG_NUMBER: "a number has more than 64 bits",
    MessageFault.INT_RANGE: "{} is no int: it has more than 32 bits",
    MessageFault.BOOLEAN: "a boolean is 0 or 1, not {}",
    MessageFault.UTF8: "a string is not UTF-8",
    MessageFault.LENGTH: "{} is no length",
    MessageFault.BRANCH: "the union has no branch {}",
    MessageFault.SYMBOL: "the enum has no symbol {}",
    MessageFault.UNKNOWN_SYMBOL:
        "the reader's enum lacks the writer's symbol {}, and has no default",
    MessageFault.ITEMS: "a block claims {} items, more than its message can hold",
    MessageFault.DECIMAL: "a decimal has more digits than its precision",
    MessageFault.TIME: "{} is no time of day",
    MessageFault.TIMESTAMP: "{} is no timestamp: it is out of range",
    MessageFault.DEPTH: f"values nest deeper than {WALK_DEPTH_MAX}",
    MessageFault.TOO_MANY: "it claims far more values than it has bytes",
    MessageFault.TOO_LARGE: "decoded, the messages of one block are too large",
}


class Allowance(NamedTuple):
    """The bound on the work for a message of n bytes: `fixed + n * per_byte` units.

    A step, a value and eight bytes of a default or of an enum's symbol are one unit each.  The
    bound lets each byte of a message fill every sink once, and every default be used once.  Only
    items of no bytes can need more (arrays of nulls, or of records of which the reader has only
    defaults); what they need beyond it is taken from FREE_VALUES_MAX, which all messages of a block
    share.  UNITS_MAX bounds every message, however long, and all messages of a block together: a
    block that needs more is decoded in halves (`bounds`).
    """

    fixed: int
    per_byte: int


def allowance(sinks: int, program: ReadProgram) -> Allowance:
    """The bound on each message of a program with this number of sinks."""
    texts = sum(len(text) for step in program.steps for text in step.texts if text is not None)
    per_byte = 16 + sinks
    return Allowance(per_byte + len(program.steps) + texts // 8, per_byte)


class Complaint(NamedTuple):
    """A message that could not be read, and why."""

    row: int
    fault: MessageFault
    detail: int
    schema_id: int


class Filled(NamedTuple):
    """The content of a sink as Arrow's buffers; bits are counted from the lowest."""

    length: int
    validity: object | None  # None: no nulls
    values: object | None  # numbers, bits, or offsets
    data: object | None = None  # of BLOB


def assemble(sinks: Sequence[ArrowSink], filled: Sequence[Filled]) -> pa.StructArray:
    """The array of the first sink, with its children."""
    return _array(sinks, filled, 0)


def _array(sinks: Sequence[ArrowSink], filled: Sequence[Filled], index: int) -> pa.Array:
    sink, (length, validity, values, data) = sinks[index], filled[index]
    children = [_array(sinks, filled, child) for child in sink.children]
    buffers = [None if validity is None else pa.py_buffer(validity)]
    if sink.kind is not ArrowKind.STRUCT:
        buffers.append(pa.py_buffer(values))
    if sink.kind is ArrowKind.BLOB:
        buffers.append(pa.py_buffer(data))
    if len(children) == 2 and sink.kind is ArrowKind.LIST:
        entries = pa.struct([sink.type.key_field, sink.type.item_field])
        children = [pa.Array.from_buffers(entries, len(children[0]), [None], children=children)]
    return pa.Array.from_buffers(sink.type, length, buffers, children=children)
