"""How the fields of a message are declared: their type, versions, default and tag.

    leader_epoch: int = int32("7+", default=-1)
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)

Versions are written as Kafka does: "3" is one, "0-7" includes both ends, "9+" has no end, "" is
none.  They are versions of the message, also in the fields of a nested struct.

A type checker sees each declaration as a default value of the field's type, so every field may be
left out of a constructor.  At run time it is a `Field`, which the class stores (schema.py).
"""

from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

from quipu.model.ids import ZERO_UUID

T = TypeVar("T")
VERSION_END: Final = 1 << 15  # versions are 16 bits with a sign


@dataclass(frozen=True, slots=True)
class FieldKind(Generic[T]):
    """A primitive type of the protocol."""

    name: str
    code: str  # its format character in `struct`; empty if its size varies
    size_min: int  # bytes; without the length, for a type whose size varies
    zero: T


BOOL: Final = FieldKind("bool", "?", 1, False)  # noqa: FBT003 the zero of its kind
INT8: Final = FieldKind("int8", "b", 1, 0)
INT16: Final = FieldKind("int16", "h", 2, 0)
UINT16: Final = FieldKind("uint16", "H", 2, 0)
INT32: Final = FieldKind("int32", "i", 4, 0)
INT64: Final = FieldKind("int64", "q", 8, 0)
FLOAT64: Final = FieldKind("float64", "d", 8, 0.0)
UUID16: Final = FieldKind("uuid", "16s", 16, ZERO_UUID)
STRING: Final = FieldKind("string", "", 0, "")
BYTES: Final = FieldKind("bytes", "", 0, b"")
RECORDS: Final[FieldKind[memoryview | None]] = FieldKind("records", "", 0, None)


class Field(NamedTuple):
    """The declaration of one field of a struct."""

    kind: Any  # a FieldKind, or the class of a nested struct
    versions: str
    default: Any
    is_array: bool = False
    nullable: str = ""
    tag: int | None = None

    @property
    def is_struct(self) -> bool:
        return not isinstance(self.kind, FieldKind)


def parse_versions(text: str) -> range:
    """The range of versions that a declaration's text means."""
    if not text:
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_END)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    return cast("bool", Field(BOOL, versions, default, tag=tag))


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field(INT8, versions, default, tag=tag))


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field(INT16, versions, default, tag=tag))


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field(UINT16, versions, default, tag=tag))


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field(INT32, versions, default, tag=tag))


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    return cast("int", Field(INT64, versions, default, tag=tag))


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> float:
    return cast("float", Field(FLOAT64, versions, default, tag=tag))


def uuid(versions: str = "0+", *, tag: int | None = None) -> UUID:
    """A UUID; all zeros means none."""
    return cast("UUID", Field(UUID16, versions, ZERO_UUID, tag=tag))


def string(
    versions: str = "0+", *, nullable: str = "", default: str | None = "", tag: int | None = None
) -> str:
    return cast("str", Field(STRING, versions, default, nullable=nullable, tag=tag))


def binary(
    versions: str = "0+", *, nullable: str = "", default: bytes | None = b"", tag: int | None = None
) -> bytes:
    return cast("bytes", Field(BYTES, versions, default, nullable=nullable, tag=tag))


def records(versions: str = "0+", *, nullable: str = "0+") -> memoryview | None:
    """Record batches: a view of the message's bytes, never a copy."""
    return cast("memoryview | None", Field(RECORDS, versions, None, nullable=nullable))


def array(
    of: type[T] | FieldKind[T],
    versions: str = "0+",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
) -> list[T]:
    return cast("list[T]", Field(of, versions, default, is_array=True, nullable=nullable, tag=tag))


def struct(
    of: type[T], versions: str = "0+", *, nullable: str = "", tag: int | None = None
) -> T:
    """A nested struct.  Its default is null if it may be null, else one with all defaults."""
    default = None if nullable else of
    return cast("T", Field(of, versions, default, nullable=nullable, tag=tag))
