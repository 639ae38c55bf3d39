"""Arrays of a response that are encoded element by element, while they are built.

An array of structs in a message may be an `EncodedArray` instead of a list: an element is encoded
when it is appended, and not kept as an object.  So a long response takes little more memory than
its bytes, its size is known all the time, and encoding it at the end is one copy.
"""

from typing import Any, Generic, Protocol, TypeVar, cast

from quipu.wire.encoder import Encode

T = TypeVar("T")


class Meter(Protocol):
    """Counts the bytes of a response while it is built."""

    def spend(self, size: int) -> None:
        """Add `size` to the bytes held, or subtract if negative; raise if they are too many."""
        ...


class EncodedArray(Generic[T]):
    """An array whose elements have been encoded already."""

    __slots__ = ("_count", "_data", "_encode", "_meter")

    def __init__(self, encode: Encode, meter: Meter) -> None:
        self._encode = encode
        self._meter = meter
        self._count = 0
        self._data = bytearray()

    def __len__(self) -> int:
        return self._count

    def as_list(self) -> list[T]:
        """This array, typed as the list that a message's field has."""
        return cast("list[T]", self)

    def append(self, item: T) -> None:
        parts: list[Any] = []
        self._encode((item,), parts)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._meter.spend(len(data))
        self._data += data
        self._count += 1

    def append_encoded(self, data: bytes, count: int) -> None:
        """Append `count` elements that were encoded elsewhere, in the same version."""
        self._meter.spend(len(data))
        self._data += data
        self._count += count

    def encoded(self) -> bytes:
        """A copy of the elements' bytes, for `append_encoded` of another array."""
        return bytes(self._data)

    def move(self, out: list[Any]) -> None:
        """Append the bytes to `out`, the message being encoded, and stop counting them here."""
        out.append(self._data)
        self._meter.spend(-len(self._data))
