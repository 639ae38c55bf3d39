"""Well-formed requests with hostile contents, made from the definitions of the messages.

For every API and version that has arrays, `array_paths` gives the way to each of them, and
`request_of` a request in which that array has many elements, the arrays around it one each:

    for path in array_paths(DescribeGroupsRequest, 5):
        request_of(DescribeGroupsRequest, 5, path, 20_000, Values())

`Values` says what the plain fields are: by default the same for every element, names of things
that exist.  Others make every element another one, or take the ends of the numbers.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from quipu.wire.fields import parse_versions
from quipu.wire.layout import FieldSlot, layout
from quipu.wire.schema import Request

Path = tuple[str, ...]

_ENDS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}


class Values:
    """The same for every element: a topic, a group, partition 0, and defaults."""

    def __init__(self, topic: str = "bystander", group: str = "bystanders") -> None:
        self.topic = topic
        self.group = group

    def of(self, struct: str, slot: FieldSlot, index: int) -> Any:
        """The value of a plain field of the element `index` of an array."""
        del index
        return self.known(struct, slot)

    def known(self, struct: str, slot: FieldSlot) -> Any:
        """A value that names something, where the field is for a name."""
        if slot.kind.name == "string":
            about_groups = "group" in slot.name or "Group" in struct or slot.name in (
                "key", "coordinator_keys")
            return self.group if about_groups else self.topic
        if slot.name == "resource_type":
            return 2  # topics
        if slot.name in ("timeout", "session_timeout", "rebalance_timeout"):
            return 1000
        return slot.kind.zero if slot.is_array else slot.default


class EachAnother(Values):
    """Every element is another one, with a name that nothing has; names have `size` characters."""

    def __init__(self, *, size: int = 8) -> None:
        super().__init__()
        self._size = size

    def of(self, struct: str, slot: FieldSlot, index: int) -> Any:
        if slot.kind.name == "string":
            return f"{index:0{self._size}}"
        if slot.kind.name == "uuid":
            return UUID(int=index + 1)
        if slot.name in ("partition", "partition_index", "partition_indexes", "partitions"):
            return index
        return self.known(struct, slot)


class Extremes(Values):
    """Numbers at their ends, by turns; names that are long, empty or odd."""

    NAMES = ("", ".", "..", "x" * 249, "x" * 250, "y" * 30_000, "a/../b", "\0", "é" * 100,
             "__consumer_offsets", "__cluster", "bystander")

    def of(self, struct: str, slot: FieldSlot, index: int) -> Any:
        del struct
        kind = slot.kind.name
        if kind == "string":
            return self.NAMES[index % len(self.NAMES)]
        if kind in _ENDS:
            bits = _ENDS[kind]
            low = 0 if kind == "uint16" else -(1 << bits)
            return (low, (1 << bits) - 1, -1, 0, 1)[index % 5] if low else index % 2
        if kind == "bool":
            return bool(index % 2)
        if kind == "uuid":
            return UUID(int=((1 << 128) - 1) * (index % 2))
        if kind == "bytes":
            return b"\xff" * (index % 50)
        return slot.kind.zero


def array_paths(request: type[Request], version: int) -> list[Path]:
    """The names that lead to each array of a request, outermost first."""
    return list(_paths(request, version, ()))


def _paths(struct: Any, version: int, outer: Path) -> Iterator[Path]:
    shape = layout(struct, version)
    for slot in (*shape.plain, *shape.tagged):
        if slot.is_array:
            yield (*outer, slot.name)
            if slot.is_struct:
                yield from _paths(slot.kind, version, (*outer, slot.name))


def request_of(
    request: type[Request], version: int, path: Path, count: int, values: Values | None = None
) -> Request:
    """A request whose array at `path` has `count` elements; a bare one for the empty path."""
    made: Request = _Filler(version, count, values or Values()).fill(request, path, 0)
    return made


class _Filler:
    def __init__(self, version: int, count: int, values: Values) -> None:
        self._version = version
        self._count = count
        self._values = values

    def fill(self, struct: Any, path: Path, index: int) -> Any:
        made = struct()
        shape = layout(struct, self._version)
        for slot in (*shape.plain, *shape.tagged):
            if slot.is_array:
                is_on_path = bool(path) and slot.name == path[0]
                value = self._array(struct, slot, path[1:] if is_on_path else None)
            elif slot.is_struct:
                value = None if slot.nullable else self.fill(slot.kind, (), index)
            else:
                value = self._values.of(struct.__name__, slot, index)
            setattr(made, slot.name, value)
        return made

    def _array(self, struct: Any, slot: FieldSlot, rest: Path | None) -> list[Any] | None:
        """`rest` is the path from here on; None for an array beside it."""
        if rest is None:
            return None if slot.nullable and slot.default is None else []
        indexes = range(1 if rest else self._count)
        if slot.is_struct:
            return [self.fill(slot.kind, rest, index) for index in indexes]
        return [self._values.of(struct.__name__, slot, index) for index in indexes]


def everything_of(request: type[Request], version: int, path: Path) -> Request:
    """A request whose array at `path` is null, which asks for all; needs `may_be_null`."""
    made = request_of(request, version, path, 1)
    holder: Any = made
    for name in path[:-1]:
        holder = getattr(holder, name)[0]
    setattr(holder, path[-1], None)
    return made


def may_be_null(request: type[Request], version: int, path: Path) -> bool:
    """Can the array at `path` be null?"""
    struct: Any = request
    for name in path[:-1]:
        struct = struct.FIELDS[name].kind
    field = struct.FIELDS[path[-1]]
    return version in parse_versions(field.nullable)
