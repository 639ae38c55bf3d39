"""Generates the functions that encode structs: one per struct, version and flexibility.

    encode(items, out) appends the bytes of each item to the list `out`

`items` is a list of structs, or an array that was encoded while it was built (encoded.py).

What makes them fast: a run of neighbouring fields of fixed width is packed in one call, together
with arrays of numbers in the run, by a format cached for each combination of their lengths.  The
tag section of a struct is nearly always empty, one zero byte: that byte is part of the last run,
and removed again for a struct with tags.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from typing import Any

from quipu.wire.function_text import FunctionText
from quipu.wire.layout import FieldSlot, StructLayout, layout
from quipu.wire.primitives import UVARINTS, Packings, write_tags

Encode = Callable[[Any, list[Any]], None]


@cache
def compile_encoder(struct: Any, version: int, *, flexible: bool) -> Encode:
    shape = layout(struct, version)
    title = f"{shape.name} v{version}{' flexible' if flexible else ''}, encode"
    source = FunctionText("encode", title)
    with source.block("if not isinstance(items, (list, tuple)):"):
        source.line("items.move(out)")
        source.line("return")
    source.line("add = out.append")
    with source.block("for o in items:"):
        writer = _Writer(source, version, flexible=flexible)
        for slot in shape.plain:
            writer.write(slot, f"o.{slot.name}")
        if flexible:
            writer.pack("x")
        writer.flush()
        if flexible:
            _write_tags(writer, shape)
        if not (shape.plain or flexible):
            source.line("pass")
    made: Encode = source.compile("items, out", UV=UVARINTS, write_tags=write_tags)
    return made


def _write_tags(writer: "_Writer", shape: StructLayout) -> None:
    source = writer.source
    differs = {slot.name: _differs(source, slot) for slot in shape.tagged}
    with source.block(f"if {' or '.join(['o.unknown_tags', *differs.values()])}:"):
        source.line("out[-1] = out[-1][:-1]")
        source.line("tags = dict(o.unknown_tags)")
        for slot in shape.tagged:
            with source.block(f"if {differs[slot.name]}:"):
                source.line("part = []")
                source.line("add = part.append")
                writer.target = "part"
                writer.write(slot, f"o.{slot.name}")
                writer.flush()
                source.line(f"tags[{slot.tag}] = b''.join(part)")
        if shape.tagged:
            writer.target = "out"
            source.line("add = out.append")
        source.line("write_tags(out, tags)")


def _differs(source: FunctionText, slot: FieldSlot) -> str:
    """An expression: whether the value differs from the default, which is not written."""
    if slot.default is None:
        return f"o.{slot.name} is not None"
    if slot.is_array:
        return f"o.{slot.name}"
    default = slot.kind() if slot.is_struct else slot.default
    return f"o.{slot.name} != {source.value('default', default)}"


class _Writer:
    """Generates lines that encode fields; collects a run of fixed-width fields until it ends."""

    def __init__(self, source: FunctionText, version: int, *, flexible: bool) -> None:
        self.source = source
        self.target = "out"  # the list that the lines append to; `add` is its append method
        self._version = version
        self._flexible = flexible
        self._pieces: list[str | tuple[str, bool]] = []  # of the run, for Packings
        self._arguments: list[str] = []
        self._lengths: list[str] = []  # of the arrays in the run

    def write(self, slot: FieldSlot, value: str) -> None:
        if slot.is_array and slot.is_fixed:
            self._write_numbers(slot, value)
        elif slot.is_array:
            self._write_array(slot, value)
        elif slot.is_struct:
            self._write_struct(slot, value)
        elif slot.is_fixed:
            self.pack(slot.kind.code, f"{value}.bytes" if slot.kind.name == "uuid" else value)
        else:
            self._write_bytes(slot, value)

    def pack(self, code: str, *arguments: str) -> None:
        """Add a field to the run."""
        self._pieces.append(code)
        self._arguments.extend(arguments)

    def flush(self) -> None:
        """End the run: pack it."""
        if not self._pieces:
            return
        arguments = ", ".join(self._arguments)
        if self._lengths:
            packings = self.source.value("packings", Packings(tuple(self._pieces)))
            self.source.line(f"add({packings}[{', '.join(self._lengths)}]({arguments}))")
        else:
            code = ">" + "".join(piece for piece in self._pieces if isinstance(piece, str))
            packing = Packing(code)
            if arguments:
                self.source.line(f"add({self.source.value('pack', packing.pack)}({arguments}))")
            else:
                self.source.line(f"add({packing.pack()!r})")
        self._pieces, self._arguments, self._lengths = [], [], []

    def _write_numbers(self, slot: FieldSlot, value: str) -> None:
        array = self._bind(value)
        length = self._length(slot, array)
        self._lengths.append(length)
        self._pieces.append((slot.kind.code, self._flexible))
        self._arguments.append(f"UV[{length} + 1]" if self._flexible else length)
        elements = f"[u.bytes for u in {array} or ()]" if slot.kind.name == "uuid" else array
        self._arguments.append(f"*({elements} or ())" if slot.nullable else f"*{elements}")

    def _write_array(self, slot: FieldSlot, value: str) -> None:
        array = self._bind(value)
        self._write_length(self._length(slot, array), "i")
        if slot.is_struct:
            encode = compile_encoder(slot.kind, self._version, flexible=self._flexible)
            call = f"{self.source.value('encode', encode)}({array}, {self.target})"
            self._when(f"if {array}:", call)
            return
        element = self.source.name("element")
        self.flush()
        with self.source.block(f"for {element} in {array} or ():"):
            self._write_bytes(slot._replace(is_array=False, nullable=False), element)
            self.flush()

    def _write_struct(self, slot: FieldSlot, value: str) -> None:
        nested = self._bind(value)
        if slot.nullable:
            self.pack("b", f"-1 if {nested} is None else 1")
        encode = compile_encoder(slot.kind, self._version, flexible=self._flexible)
        call = f"{self.source.value('encode', encode)}(({nested},), {self.target})"
        self._when(f"if {nested} is not None:" if slot.nullable else "", call)

    def _write_bytes(self, slot: FieldSlot, value: str) -> None:
        if slot.kind.name == "string":
            encoded = self.source.name("text")
            null = f"None if {value} is None else " if slot.nullable else ""
            self.source.line(f"{encoded} = {null}{value}.encode()")
            width = "h"
        else:
            encoded = self._bind(value)
            width = "i"
        self._write_length(self._length(slot, encoded), width)
        self._when(f"if {encoded}:" if slot.nullable else "", f"add({encoded})")

    def _write_length(self, length: str, width: str) -> None:
        if self._flexible:
            self.flush()
            self.source.line(f"add(UV[{length} + 1])")
        else:
            self.pack(width, length)

    def _length(self, slot: FieldSlot, value: str) -> str:
        """Assign the length of a variable, -1 for null, to a new variable; return its name."""
        length = self.source.name("n")
        null = f"-1 if {value} is None else " if slot.nullable else ""
        self.source.line(f"{length} = {null}len({value})")
        return length

    def _bind(self, value: str) -> str:
        bound = self.source.name("v")
        self.source.line(f"{bound} = {value}")
        return bound

    def _when(self, condition: str, text: str) -> None:
        """End the run, then generate a line, under `condition` unless that is empty."""
        self.flush()
        if condition:
            with self.source.block(condition):
                self.source.line(text)
        else:
            self.source.line(text)
