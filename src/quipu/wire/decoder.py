"""Generates the functions that decode structs: one per struct, version and flexibility.

    decode(data, position, end, count, room) -> (list of `count` structs, position after them)

`data` is bytes, or for messages with records a memoryview, of which each `records` is a slice.
`room` is a list of one number: how many more elements arrays and tag sections may have in total.
An element takes far more memory and time than its bytes, so elements are counted separately.

What makes them fast: a run of neighbouring fields of fixed width is unpacked in one call, along
with the length of the field after it; an array of numbers is unpacked in one call, too.

What makes them safe: a length is compared with the bytes left before it is used, and a count
times the smallest size of an element likewise.  Runs are not checked: past the end of the data,
`struct` and indexing raise errors that the caller of the outermost function handles; a run past the
end of a tagged field is found because the field then does not end where its size says.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from typing import Any

from quipu.wire import primitives
from quipu.wire.function_text import FunctionText
from quipu.wire.layout import FieldSlot, StructLayout, layout, size_min

Decode = Callable[[Any, int, int, int, list[int]], tuple[list[Any], int]]

_HELPERS = {
    "uvarint_rest": primitives.read_uvarint_rest,
    "read_tag": primitives.read_tag,
    "read_tags": primitives.read_tags,
    "uuid_from": primitives.uuid_from,
    "too_long": primitives.too_long,
    "too_many": primitives.too_many,
    "not_null": primitives.not_null,
    "bad_length": primitives.bad_length,
    "bad_marker": primitives.bad_marker,
    "bad_size": primitives.bad_size,
    "new": object.__new__,
}
_ARRAYS = {code: primitives.Arrays(code) for code in ("?", "b", "h", "i", "q", "16s")}


@cache
def compile_decoder(struct: Any, version: int, *, flexible: bool, view: bool) -> Decode:
    """The decoder of a struct in one version, for bytes or for a memoryview (`view`)."""
    shape = layout(struct, version)
    title = f"{shape.name} v{version}{' flexible' if flexible else ''}, decode"
    source = FunctionText("decode", title)
    source.line("items = []")
    source.line("add = items.append")
    with source.block("for _ in range(count):"):
        source.line("o = new(cls)")
        reader = _Reader(source, shape.name, version, flexible=flexible, view=view)
        for slot in shape.plain:
            reader.read(slot, f"o.{slot.name}")
        if flexible:
            reader.unpack("B", "tag_count")
        reader.flush()
        for slot in (*shape.absent, *shape.tagged):
            source.line(f"o.{slot.name} = {_default(source, slot)}")
        source.line("o.unknown_tags = ()")
        if flexible:
            _read_tags(reader, shape)
        source.line("add(o)")
    source.line("return items, p")
    made: Decode = source.compile("d, p, end, count, room", cls=struct, **_HELPERS)
    return made


def _read_tags(reader: "_Reader", shape: StructLayout) -> None:
    source = reader.source
    with source.block("if tag_count:"):
        source.line("tag_count, p = uvarint_rest(d, p, tag_count)")
        reader.take_room(shape.name, "tag_count")
        if not shape.tagged:
            source.line("o.unknown_tags, p = read_tags(d, p, end, tag_count)")
            return
        source.line("tag = -1")
        source.line("unknown = []")
        with source.block("for _ in range(tag_count):"):
            source.line("tag, p, stop = read_tag(d, p, end, tag)")
            opening = "if"
            reader.end = "stop"
            for slot in shape.tagged:
                with source.block(f"{opening} tag == {slot.tag}:"):
                    reader.read(slot, f"o.{slot.name}")
                    reader.flush()
                    with source.block("if p != stop:"):
                        source.line(f"raise bad_size({reader.what(slot)}, stop, p)")
                opening = "elif"
            with source.block("else:"):
                source.line("unknown.append((tag, bytes(d[p:stop])))")
                source.line("p = stop")
        source.line("o.unknown_tags = tuple(unknown)")


def _default(source: FunctionText, slot: FieldSlot) -> str:
    if slot.default is None:
        return "None"
    if slot.is_array:
        return "[]"
    if slot.is_struct:
        return f"{source.value('make', slot.kind)}()"
    return source.value("default", slot.default)


class _Reader:
    """Generates lines that decode fields; collects a run of fixed-width fields until it ends."""

    def __init__(
        self, source: FunctionText, name: str, version: int, *, flexible: bool, view: bool
    ) -> None:
        self.source = source
        self.end = "end"  # the variable with the position that no field may exceed
        self._name = name
        self._version = version
        self._flexible = flexible
        self._view = view
        self._codes: list[str] = []  # of the run
        self._targets: list[str] = []
        self._after: list[str] = []  # lines that follow the run

    def what(self, slot: FieldSlot) -> str:
        """The field's name in errors, as a literal."""
        return repr(f"{self._name}.{slot.name}")

    def read(self, slot: FieldSlot, target: str) -> None:
        if slot.is_array:
            self._read_array(slot, target)
        elif slot.is_struct:
            self._read_struct(slot, target)
        elif slot.kind.name == "uuid":
            raw = self.source.name("raw")
            self.unpack(slot.kind.code, raw)
            self._after.append(f"{target} = uuid_from({raw})")
        elif slot.is_fixed:
            self.unpack(slot.kind.code, target)
        else:
            self._read_bytes(slot, target)

    def unpack(self, code: str, target: str) -> None:
        """Add a field to the run."""
        self._codes.append(code)
        self._targets.append(target)

    def flush(self) -> None:
        """End the run: unpack it."""
        if self._codes:
            packing = Packing(">" + "".join(self._codes))
            if self._codes == ["B"]:
                self.source.line(f"{self._targets[0]} = d[p]")
            else:
                unpack = self.source.value("unpack", packing.unpack_from)
                self.source.line(f"{', '.join(self._targets)}, = {unpack}(d, p)")
            self.source.line(f"p += {packing.size}")
        for line in self._after:
            self.source.line(line)
        self._codes, self._targets, self._after = [], [], []

    def _read_length(self, slot: FieldSlot, width: str) -> str:
        """Read the next length or count into a new variable and return its name; -1 is null."""
        length = self.source.name("n")
        self.unpack("B" if self._flexible else width, length)
        self.flush()
        if self._flexible:
            with self.source.block(f"if {length} > 127:"):
                self.source.line(f"{length}, p = uvarint_rest(d, p, {length})")
            self.source.line(f"{length} -= 1")
        with self.source.block(f"if {length} < {-1 if slot.nullable else 0}:"):
            wrong = "bad_length" if slot.nullable else "not_null"
            length_too = f", {length}" if slot.nullable else ""
            self.source.line(f"raise {wrong}({self.what(slot)}{length_too})")
        return length

    def _read_bytes(self, slot: FieldSlot, target: str) -> None:
        length = self._read_length(slot, "h" if slot.kind.name == "string" else "i")
        if slot.nullable:
            with self.source.block(f"if {length} < 0:"):
                self.source.line(f"{target} = None")
            with self.source.block("else:"):
                self._take(slot, target, length)
        else:
            self._take(slot, target, length)

    def _take(self, slot: FieldSlot, target: str, length: str) -> None:
        self._check(slot, length, length)
        taken = f"d[p:p + {length}]"
        made = {
            "string": f'str({taken}, "utf-8")' if self._view else f"{taken}.decode()",
            "bytes": f"bytes({taken})" if self._view else taken,
            "records": taken,
        }
        self.source.line(f"{target} = {made[slot.kind.name]}")
        self.source.line(f"p += {length}")

    def _check(self, slot: FieldSlot, condition: str, size: str) -> None:
        with self.source.block(f"if {condition} > {self.end} - p:"):
            self.source.line(f"raise too_long({self.what(slot)}, {size}, p, {self.end})")

    def _read_array(self, slot: FieldSlot, target: str) -> None:
        count = self._read_length(slot, "i")
        if slot.nullable:
            with self.source.block(f"if {count} < 0:"):
                self.source.line(f"{target} = None")
            with self.source.block("else:"):
                self._read_elements(slot, target, count)
        else:
            self._read_elements(slot, target, count)

    def take_room(self, what: str, count: str) -> None:
        """Generate lines that raise if there are more elements than `room` allows."""
        self.source.line(f"room[0] -= {count}")
        with self.source.block("if room[0] < 0:"):
            self.source.line(f"raise too_many({what!r})")

    def _read_elements(self, slot: FieldSlot, target: str, count: str) -> None:
        # wire.M2: compare the count with the bytes left before a list is allocated
        size = f"{count} * {self._element_size_min(slot)}"
        self._check(slot, size, size)
        self.take_room(f"{self._name}.{slot.name}", count)
        if slot.is_struct:
            decode = self._nested(slot)
            call = f"{self.source.value('decode', decode)}(d, p, {self.end}, {count}, room)"
            self.source.line(f"{target}, p = {call}")
        elif slot.is_fixed:
            arrays = self.source.value("arrays", _ARRAYS[slot.kind.code])
            numbers = f"{arrays}[{count}](d, p)"
            is_uuid = slot.kind.name == "uuid"
            made = f"[uuid_from(u) for u in {numbers}]" if is_uuid else f"list({numbers})"
            self.source.line(f"{target} = {made}")
            self.source.line(f"p += {size}")
        else:
            array, element = self.source.name("array"), self.source.name("element")
            self.source.line(f"{array} = []")
            with self.source.block(f"for _ in range({count}):"):
                self._read_bytes(slot._replace(is_array=False, nullable=False), element)
                self.source.line(f"{array}.append({element})")
            self.source.line(f"{target} = {array}")

    def _nested(self, slot: FieldSlot) -> Decode:
        return compile_decoder(
            slot.kind, self._version, flexible=self._flexible, view=self._view)

    def _element_size_min(self, slot: FieldSlot) -> int:
        if slot.is_struct:
            size = size_min(slot.kind, self._version, flexible=self._flexible)
        elif slot.is_fixed:
            size = slot.kind.size_min
        elif self._flexible:
            size = 1
        else:
            size = 2 if slot.kind.name == "string" else 4
        assert size > 0, slot  # else a count could not be bounded by the bytes left
        return int(size)

    def _read_struct(self, slot: FieldSlot, target: str) -> None:
        decode = self._nested(slot)
        call = f"({target},), p = {self.source.value('decode', decode)}(d, p, {self.end}, 1, room)"
        if not slot.nullable:
            self.flush()
            self.source.line(call)
            return
        marker = self.source.name("marker")
        self.unpack("b", marker)
        self.flush()
        with self.source.block(f"if {marker} == 1:"):
            self.source.line(call)
        with self.source.block(f"elif {marker} == -1:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"raise bad_marker({self.what(slot)}, {marker})")
