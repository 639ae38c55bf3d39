"""Operations and entries as bytes: the commands in the topic, and the calls between nodes.

    text        size u16 | ASCII
    value       size u32 | bytes
    operations  count u32, and for each: kind u8 | key text | value (not of kind 3)
                1 create   2 update   3 remove   4 expect
    command     version u8 (1) | operations
    request     call u8, then
                1 execute    operations
                2 get many   count u32 | key text ...
                3 floor      parent text | key text
                4 page       parent text | after text (empty: from the first) | limit u32
    response    status u8, then for 0 (done): count u32, and for each entry: key text | value;
                for any other status, which is an error's: message text

Not here: what operations do (remote/metadata/storage/entry_table.py).
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 the module has no class of its own for it
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    ExpectationFailed,
    InvalidStorageRequest,
    KeyExists,
    KeyNotFound,
    MetadataStorageError,
    OutcomeUnknown,
)
from quipu.remote.metadata.serde import VALUE_SIZE_MAX
from quipu.remote.metadata.storage.backend import (
    KEY_SIZE_MAX,
    OPERATIONS_MAX,
    PAGE_MAX,
    CreateKey,
    ExpectValue,
    KeyValue,
    Operation,
    RemoveKey,
    UpdateKey,
)

COMMAND_SIZE_MAX: Final = 4 << 20  # bytes of one command, and so of one atomic step
MESSAGE_SIZE_MAX: Final = 1000  # characters of an error's message
_VERSION: Final = 1
_KINDS: Final = (CreateKey, UpdateKey, RemoveKey, ExpectValue)  # kind 1 is the first

_U8: Final = Struct(">B")
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")


class Call(IntEnum):
    """What one node asks of another."""

    EXECUTE = 1
    GET_MANY = 2
    FLOOR = 3
    PAGE = 4


class NotMetadataLeader(BackendUnavailable):
    """The node that was asked does not lead the partition of the key; nothing was written."""


# By the status in a response; a subclass comes before its base.
_ERRORS: Final[Sequence[type[MetadataStorageError]]] = (
    KeyExists, KeyNotFound, ExpectationFailed, OutcomeUnknown, NotMetadataLeader,
    BackendUnavailable, InvalidStorageRequest)


class MetadataRequest(NamedTuple):
    """A call of another node; only the fields of its kind are set."""

    call: Call
    operations: Sequence[Operation] = ()
    keys: Sequence[str] = ()  # of FLOOR: parent and key; of PAGE: parent and after
    limit: int = 0


# --- writing ----------------------------------------------------------------------------------


def _text(text: str) -> bytes:
    data = text.encode("ascii", "replace")
    return _U16.pack(len(data)) + data


def _value(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value


def _operations(operations: Sequence[Operation]) -> bytes:
    assert len(operations) <= OPERATIONS_MAX, len(operations)
    parts = [_U32.pack(len(operations))]
    for operation in operations:
        parts += _U8.pack(_KINDS.index(type(operation)) + 1), _text(operation.key)
        if not isinstance(operation, RemoveKey):
            parts.append(_value(operation.value))
    return b"".join(parts)


def encode_command(operations: Sequence[Operation]) -> bytes:
    """Operations as a command in the log; raises `InvalidStorageRequest` if it is too large."""
    data = _U8.pack(_VERSION) + _operations(operations)
    if len(data) > COMMAND_SIZE_MAX:
        raise InvalidStorageRequest(f"{len(operations)} operations of {len(data)} bytes; at most "
                                    f"{COMMAND_SIZE_MAX} bytes are written in one step")
    return data


def encode_request(request: MetadataRequest) -> bytes:
    head = _U8.pack(request.call)
    match request.call:
        case Call.EXECUTE:
            return head + _operations(request.operations)
        case Call.GET_MANY:
            return head + _U32.pack(len(request.keys)) + b"".join(map(_text, request.keys))
        case Call.FLOOR:
            return head + b"".join(map(_text, request.keys))
        case Call.PAGE:
            return head + b"".join(map(_text, request.keys)) + _U32.pack(request.limit)


def encode_entries(entries: Sequence[KeyValue]) -> bytes:
    """A response without an error."""
    return _U8.pack(0) + _U32.pack(len(entries)) + b"".join(
        _text(key) + _value(value) for key, value in entries)


def encode_error(error: MetadataStorageError) -> bytes:
    """A response with an error."""
    number = next((number for number, kind in enumerate(_ERRORS, 1) if isinstance(error, kind)),
                  _ERRORS.index(InvalidStorageRequest) + 1)
    return _U8.pack(number) + _text(str(error)[:MESSAGE_SIZE_MAX])


# --- reading ----------------------------------------------------------------------------------


class _Reader:
    """Reads values one after the other; raises `MalformedBytes` at the first wrong one."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def number(self, struct: Struct, limit: int) -> int:
        try:
            value: int = struct.unpack_from(self._data, self._position)[0]
        except StructError as error:
            raise MalformedBytes(f"cut short at byte {self._position}") from error
        if value > limit:
            raise MalformedBytes(f"{value} at byte {self._position}; at most {limit}")
        self._position += struct.size
        return value

    def _bytes(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise MalformedBytes(f"{size} bytes at {self._position}, but "
                                 f"{len(self._data) - self._position} are left")
        data = bytes(self._data[self._position:end])
        self._position = end
        return data

    def text(self, size_max: int = KEY_SIZE_MAX) -> str:
        try:
            return self._bytes(self.number(_U16, size_max)).decode("ascii")
        except UnicodeDecodeError as error:
            raise MalformedBytes(f"no ASCII text before byte {self._position}") from error

    def value(self) -> bytes:
        return self._bytes(self.number(_U32, VALUE_SIZE_MAX))

    def operations(self) -> list[Operation]:
        found: list[Operation] = []
        for _ in range(self.number(_U32, OPERATIONS_MAX)):
            match self.number(_U8, len(_KINDS)):
                case 1:
                    found.append(CreateKey(self.text(), self.value()))
                case 2:
                    found.append(UpdateKey(self.text(), self.value()))
                case 3:
                    found.append(RemoveKey(self.text()))
                case 4:
                    found.append(ExpectValue(self.text(), self.value()))
                case _:
                    raise MalformedBytes("an operation of kind 0")
        return found

    def end(self) -> None:
        if self._position != len(self._data):
            raise MalformedBytes(f"{len(self._data) - self._position} bytes too many")


def decode_command(data: bytes) -> list[Operation]:
    """The operations of a command; raises `MalformedBytes`."""
    reader = _Reader(data)
    version = reader.number(_U8, 255)
    if version != _VERSION:
        raise MalformedBytes(f"a command of version {version}; this node knows {_VERSION}")
    operations = reader.operations()
    reader.end()
    return operations


def decode_request(data: bytes) -> MetadataRequest:
    """A request of another node; raises `MalformedBytes`."""
    reader = _Reader(data)
    number = reader.number(_U8, max(Call))
    if number not in tuple(Call):
        raise MalformedBytes(f"call {number} is unknown")
    call = Call(number)
    operations: list[Operation] = []
    keys: list[str] = []
    limit = 0
    match call:
        case Call.EXECUTE:
            operations = reader.operations()
        case Call.GET_MANY:
            keys = [reader.text() for _ in range(reader.number(_U32, PAGE_MAX))]
        case Call.FLOOR:
            keys = [reader.text(), reader.text()]
        case Call.PAGE:
            keys = [reader.text(), reader.text()]
            limit = reader.number(_U32, PAGE_MAX)
    reader.end()
    return MetadataRequest(call, operations, keys, limit)


def decode_response(data: bytes) -> list[KeyValue]:
    """The entries of a response; raises the error in it, or `MalformedBytes`."""
    reader = _Reader(data)
    status = reader.number(_U8, len(_ERRORS))
    if status:
        message = reader.text(MESSAGE_SIZE_MAX)
        reader.end()
        raise _ERRORS[status - 1](message)
    entries = [KeyValue(reader.text(), reader.value())
               for _ in range(reader.number(_U32, PAGE_MAX))]
    reader.end()
    return entries
