"""The Avro walk in plain Python: twin and oracle of `_walk.pyx`.

    load(program)                        prepares a program to be run
    schema_ids(data)                     the ids of Confluent's frames in an array of messages
    walk(sinks, codes, data, framed=…)   reads all messages into Arrow arrays, and finds bad ones

After a message that cannot be read, every sink is cut back to its length before that message.
Every length is checked against the remaining bytes before it is used, and the number of values of a
message against a bound that depends on its size (`steps.Allowance`).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from quipu.pipeline.formats.avro.steps import (
    EMPTY_ITEMS_MAX,
    FREE_VALUES_MAX,
    NO_ID,
    UNITS_MAX,
    WALK_DEPTH_MAX,
    Allowance,
    ArrowKind,
    ArrowSink,
    Code,
    Complaint,
    Filled,
    MessageFault,
    Op,
    ReadProgram,
    ReadStep,
    allowance,
    assemble,
)
from quipu.pipeline.formats.bounds import TooManyValues

FRAME_SIZE: Final = 5
OFFSET_MAX: Final = (1 << 31) - 1  # of Arrow's text, bytes and lists
LONG_MAX: Final = (1 << 63) - 1

_TYPES: Final = {ArrowKind.I32: np.int32, ArrowKind.I64: np.int64, ArrowKind.F32: np.float32,
                 ArrowKind.F64: np.float64, ArrowKind.BLOB: np.int32, ArrowKind.LIST: np.int32}


class Walked(NamedTuple):
    """The first sink's array, null for absent and for bad messages; and the bad messages."""

    root: pa.StructArray
    complaints: list[Complaint]


class _Wrong(Exception):
    def __init__(self, fault: MessageFault, detail: int = 0) -> None:
        super().__init__(fault, detail)
        self.fault, self.detail = fault, detail


def load(program: ReadProgram) -> Code:
    return program


def schema_ids(data: pa.BinaryArray) -> list[int]:
    """Every id that a well-framed message has, in the order of first appearance."""
    frames = (value.as_buffer()[:FRAME_SIZE].to_pybytes() for value in data if value.is_valid)
    whole = (frame for frame in frames if len(frame) == FRAME_SIZE and frame[0] == 0)
    return list(dict.fromkeys(int.from_bytes(frame[1:], "big") for frame in whole))


def walk(sinks: Sequence[ArrowSink], codes: Mapping[int, Code], data: pa.BinaryArray, *,
         framed: bool) -> Walked:
    """Read every message with the program of its schema's id, or of NO_ID without frames."""
    filling = _Filling(sinks)
    complaints = []
    for row, value in enumerate(data.to_pylist()):
        if value is None:
            filling.append_null(0)
            continue
        schema_id = NO_ID
        try:
            if framed:
                schema_id = _schema_id(value)
            _read(value, FRAME_SIZE if framed else 0, codes[schema_id], filling)
        except _Wrong as wrong:
            filling.truncate(0, row)
            filling.append_null(0)
            complaints.append(Complaint(row, wrong.fault, wrong.detail, schema_id))
        if filling.spent > UNITS_MAX and len(data) > 1:
            raise TooManyValues
    return Walked(assemble(sinks, filling.filled()), complaints)


def _schema_id(value: bytes) -> int:
    if len(value) < FRAME_SIZE:
        raise _Wrong(MessageFault.SHORT_FRAME, len(value))
    if value[0] != 0:
        raise _Wrong(MessageFault.MAGIC, value[0])
    return int.from_bytes(value[1:FRAME_SIZE], "big")


def _read(value: bytes, start: int, program: Code, filling: "_Filling") -> None:
    assert isinstance(program, ReadProgram)
    if not program.steps:
        raise _Wrong(MessageFault.NO_PROGRAM)
    fixed, per_byte = filling.allowance(program)
    most = filling.free + fixed + min(UNITS_MAX, per_byte * (len(value) - start))
    filling.left = most
    reader = _AvroReader(value, start, program.steps, filling)
    reader.take(0)
    if reader.at != len(value):
        raise _Wrong(MessageFault.TRAILING, reader.at)
    filling.spent += most - filling.left
    filling.free = max(0, min(filling.free, filling.left))


class _Filling:
    """The values of all sinks so far."""

    def __init__(self, sinks: Sequence[ArrowSink]) -> None:
        self.sinks = sinks
        self.valid = [bytearray() for _ in sinks]  # a byte per value
        self.values: list[list[float]] = [
            [0] if sink.kind in (ArrowKind.BLOB, ArrowKind.LIST) else [] for sink in sinks]
        self.data = [bytearray() for _ in sinks]
        self.free = FREE_VALUES_MAX  # units of it that this block of messages has left
        self.left = 0  # units that the message may still use
        self.spent = 0  # units of the messages so far
        self._allowances: dict[int, Allowance] = {}

    def allowance(self, program: ReadProgram) -> Allowance:
        found = self._allowances.get(id(program))
        if found is None:
            found = self._allowances[id(program)] = allowance(len(self.sinks), program)
        return found

    def append(self, sink: int, value: float) -> None:
        self.values[sink].append(value)
        self.valid[sink].append(1)

    def append_blob(self, sink: int, blob: bytes) -> None:
        data = self.data[sink]
        if len(data) + len(blob) > OFFSET_MAX:
            raise _Wrong(MessageFault.TOO_LARGE)
        data += blob
        self.append(sink, len(data))

    def append_null(self, sink: int) -> None:
        self.left -= 1
        kind, children = self.sinks[sink].kind, self.sinks[sink].children
        if kind is ArrowKind.STRUCT:
            for child in children:
                self.append_null(child)
        else:
            offsets = kind in (ArrowKind.BLOB, ArrowKind.LIST)
            self.values[sink].append(self.values[sink][-1] if offsets else 0)
        self.valid[sink].append(0)

    def truncate(self, sink: int, length: int) -> None:
        kind, children = self.sinks[sink].kind, self.sinks[sink].children
        values = self.values[sink]
        del self.valid[sink][length:]
        if kind is ArrowKind.STRUCT:
            inner = length
        elif kind in (ArrowKind.BLOB, ArrowKind.LIST):
            del values[length + 1:]
            inner = int(values[-1])
            del self.data[sink][inner:]
        else:
            del values[length:]
            return
        for child in children:
            self.truncate(child, inner)

    def filled(self) -> list[Filled]:
        return [self._filled(index) for index in range(len(self.sinks))]

    def _filled(self, index: int) -> Filled:
        kind, values = self.sinks[index].kind, self.values[index]
        if kind is ArrowKind.BIT:
            content = _bits(bytes(map(bool, values)))
        elif kind is ArrowKind.I128:
            content = b"".join(int(each).to_bytes(16, "little", signed=True) for each in values)
        else:
            content = np.array(values, _TYPES.get(kind)).tobytes()
        valid = self.valid[index]
        return Filled(len(valid), None if all(valid) else _bits(valid), content, self.data[index])


def _bits(flags: bytes | bytearray) -> bytes:
    return np.packbits(np.frombuffer(flags, np.uint8), bitorder="little").tobytes()


class _AvroReader:
    """Reads one message: its position in the bytes, and the steps of the program."""

    def __init__(self, value: bytes, at: int, steps: Sequence[ReadStep], filling: _Filling) -> None:
        self.value, self.at, self.end = value, at, len(value)
        self.steps, self.filling = steps, filling
        self.depth = 0

    def take(self, index: int) -> None:
        step = self.steps[index]
        self.spend(1)
        _TAKERS[step.op](self, step, index)

    def spend(self, units: int) -> None:
        self.filling.left -= units
        if self.filling.left < 0:
            raise _Wrong(MessageFault.TOO_MANY)

    # -- pieces ---------------------------------------------------------------------------------

    def read_long(self) -> int:
        result = shift = 0
        while True:
            if self.at >= self.end:
                raise _Wrong(MessageFault.ENDED)
            byte = self.value[self.at]
            self.at += 1
            if shift == 63 and byte > 1:
                raise _Wrong(MessageFault.LONG_NUMBER)
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)
            shift += 7

    def read_int(self) -> int:
        number = self.read_long()
        if not -(1 << 31) <= number < 1 << 31:
            raise _Wrong(MessageFault.INT_RANGE, number)
        return number

    def read_bytes(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise _Wrong(MessageFault.ENDED)
        self.at += size
        return self.value[self.at - size:self.at]

    def read_blob(self) -> bytes:
        size = self.read_long()
        if size < 0:
            raise _Wrong(MessageFault.LENGTH, size)
        return self.read_bytes(size)

    def block(self, least: int) -> tuple[int, int]:
        """The number of items of the next block, and its end if the message gives it, else -1."""
        count, end = self.read_long(), -1
        if count < 0:
            size = self.read_long()
            if not 0 <= size <= self.end - self.at:
                raise _Wrong(MessageFault.LENGTH, size)
            count, end = -count, self.at + size
        most = (self.end - self.at) // least if least else EMPTY_ITEMS_MAX
        if count > most:
            raise _Wrong(MessageFault.ITEMS, min(count, LONG_MAX))
        return count, end

    def child(self, step: ReadStep) -> int:
        """The child of the branch that comes next."""
        branch = self.read_long()
        if not 0 <= branch < len(step.children):
            raise _Wrong(MessageFault.BRANCH, branch)
        return step.children[branch]

    def descend(self) -> None:
        self.depth += 1
        if self.depth > WALK_DEPTH_MAX:
            raise _Wrong(MessageFault.DEPTH)

    # -- steps ----------------------------------------------------------------------------------

    def skip_blocks(self, step: ReadStep, _index: int) -> None:
        self.descend()
        while True:
            count, end = self.block(step.number + (step.op is Op.SKIP_PAIRS))
            if count == 0:
                break
            if end >= 0:
                self.at = end
                continue
            for _ in range(count):
                if step.op is Op.SKIP_PAIRS:
                    self.read_blob()
                self.take(step.children[0])
        self.depth -= 1

    def record(self, step: ReadStep, _index: int) -> None:
        self.descend()
        for child in step.children:
            self.take(child)
        if step.op is Op.RECORD:
            self.filling.valid[step.sink].append(1)
        self.depth -= 1

    def take_list(self, step: ReadStep, _index: int) -> None:
        self.descend()
        children = self.filling.sinks[step.sink].children
        pairs = step.op is Op.MAP
        while True:
            count, _ = self.block(step.number + pairs)
            if count == 0:
                break
            for _ in range(count):
                if pairs:
                    self.filling.append_blob(children[0], _utf8(self.read_blob()))
                self.take(step.children[0])
        length = len(self.filling.valid[children[0]])
        if length > OFFSET_MAX:
            raise _Wrong(MessageFault.TOO_LARGE)
        self.filling.append(step.sink, length)
        self.depth -= 1

    def union(self, step: ReadStep, _index: int) -> None:
        self.descend()
        self.take(self.child(step))
        self.depth -= 1

    def choice(self, step: ReadStep, _index: int) -> None:
        self.descend()
        for place, child in enumerate(self.filling.sinks[step.sink].children):
            if place == step.number:
                self.take(step.children[0])
            else:
                self.filling.append_null(child)
        self.filling.valid[step.sink].append(1)
        self.depth -= 1

    def constant(self, step: ReadStep, _index: int) -> None:
        self.descend()
        kept = self.value, self.at, self.end
        text = step.texts[0]
        assert text is not None
        self.spend(len(text) // 8)
        self.value, self.at, self.end = text, 0, len(text)
        self.take(step.children[0])
        assert self.at == self.end
        self.value, self.at, self.end = kept
        self.depth -= 1

    def enum(self, step: ReadStep, _index: int) -> None:
        symbol = self.read_long()
        if not 0 <= symbol < len(step.texts):
            raise _Wrong(MessageFault.SYMBOL, symbol)
        text = step.texts[symbol]
        if text is None:
            raise _Wrong(MessageFault.UNKNOWN_SYMBOL, symbol)
        self.spend(len(text) // 8)
        self.filling.append_blob(step.sink, text)

    def boolean(self, step: ReadStep, _index: int) -> None:
        byte = self.read_bytes(1)[0]
        if byte > 1:
            raise _Wrong(MessageFault.BOOLEAN, byte)
        self.filling.append(step.sink, byte)

    def fail(self, _step: ReadStep, index: int) -> None:
        raise _Wrong(MessageFault.FAILED, index)


def _utf8(blob: bytes) -> bytes:
    try:
        blob.decode()
    except UnicodeDecodeError:
        raise _Wrong(MessageFault.UTF8) from None
    return blob


def _scaled(number: int, step: ReadStep) -> int:
    scaled = number * step.number if step.number > 0 else number // -step.number
    if not -LONG_MAX - 1 <= scaled <= LONG_MAX:
        raise _Wrong(MessageFault.TIMESTAMP, number)
    return scaled


def _decimal(blob: bytes, precision: int) -> int:
    number = int.from_bytes(blob, "big", signed=True)
    if abs(number) >= 10 ** precision:
        raise _Wrong(MessageFault.DECIMAL)
    return number


def _time(number: int, digits: int) -> bytes:
    unit = 10 ** digits
    if not 0 <= number < 86_400 * unit:
        raise _Wrong(MessageFault.TIME, number)
    seconds, rest = divmod(number, unit)
    return (f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            f".{rest:0{digits}}").encode()


_Take = Callable[[_AvroReader, ReadStep, int], None]  # takes one step


def _number(read: Callable[[_AvroReader, ReadStep], float]) -> _Take:
    return lambda reader, step, _index: reader.filling.append(step.sink, read(reader, step))


def _blob(read: Callable[[_AvroReader, ReadStep], bytes]) -> _Take:
    return lambda reader, step, _index: reader.filling.append_blob(step.sink, read(reader, step))


def _skip(read: Callable[[_AvroReader, ReadStep], object]) -> _Take:
    def skip(reader: _AvroReader, step: ReadStep, _index: int) -> None:
        read(reader, step)

    return skip


def _float(reader: _AvroReader) -> float:
    return float(struct.unpack("<f", reader.read_bytes(4))[0])


def _double(reader: _AvroReader) -> float:
    return float(struct.unpack("<d", reader.read_bytes(8))[0])


_TAKERS: Final[Mapping[Op, _Take]] = {
    Op.SKIP_NOTHING: lambda _reader, _step, _index: None,
    Op.SKIP_VARINT: _skip(lambda reader, _: reader.read_long()),
    Op.SKIP_BYTES: _skip(lambda reader, step: reader.read_bytes(step.number)),
    Op.SKIP_BLOB: _skip(lambda reader, _: reader.read_blob()),
    Op.SKIP_BLOCKS: _AvroReader.skip_blocks,
    Op.SKIP_PAIRS: _AvroReader.skip_blocks,
    Op.SKIP_RECORD: _AvroReader.record,
    Op.SKIP_UNION: _AvroReader.union,
    Op.NULL: lambda reader, step, _index: reader.filling.append_null(step.sink),
    Op.BOOLEAN: _AvroReader.boolean,
    Op.INT_I32: _number(lambda reader, _: reader.read_int()),
    Op.INT_I64: _number(lambda reader, step: _scaled(reader.read_int(), step)),
    Op.INT_F32: _number(lambda reader, _: float(reader.read_int())),
    Op.INT_F64: _number(lambda reader, _: float(reader.read_int())),
    Op.LONG_I64: _number(lambda reader, step: _scaled(reader.read_long(), step)),
    Op.LONG_F32: _number(lambda reader, _: float(reader.read_long())),
    Op.LONG_F64: _number(lambda reader, _: float(reader.read_long())),
    Op.FLOAT_F32: _number(lambda reader, _: _float(reader)),
    Op.FLOAT_F64: _number(lambda reader, _: _float(reader)),
    Op.DOUBLE_F64: _number(lambda reader, _: _double(reader)),
    Op.TEXT: _blob(lambda reader, _: _utf8(reader.read_blob())),
    Op.BLOB: _blob(lambda reader, _: reader.read_blob()),
    Op.FIXED: _blob(lambda reader, step: reader.read_bytes(step.number)),
    Op.ENUM: _AvroReader.enum,
    Op.DECIMAL: _number(lambda reader, step: _decimal(reader.read_blob(), step.number)),
    Op.DECIMAL_FIXED: _number(
        lambda reader, step: _decimal(reader.read_bytes(step.other), step.number)),
    Op.UUID_FIXED: _blob(lambda reader, _: str(UUID(bytes=reader.read_bytes(16))).encode()),
    Op.TIME_MILLIS: _blob(lambda reader, _: _time(reader.read_long(), 3)),
    Op.TIME_MICROS: _blob(lambda reader, _: _time(reader.read_long(), 6)),
    Op.RECORD: _AvroReader.record,
    Op.LIST: _AvroReader.take_list,
    Op.MAP: _AvroReader.take_list,
    Op.UNION: _AvroReader.union,
    Op.CHOICE: _AvroReader.choice,
    Op.CONSTANT: _AvroReader.constant,
    Op.FAIL: _AvroReader.fail,
}
