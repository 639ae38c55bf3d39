"""Checks JSON texts and finds the positions of members: the plain twin of `_scan.pyx`.

Strictly RFC 8259: no comments, no trailing commas, no NaN, no bare control characters, no lone
surrogates; nested at most `DEPTH_MAX` deep.  The text is known to be UTF-8.  Numbers may be of any
size: the cast to the type of a column checks that.  Of members with one name the last counts.

A position is that of a byte in the data buffer of the array, so that the texts of all rows can be
copied at once (`spans`).  A missing value has the end of the value before it as its position.
"""

import re
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.formats.spans import Numbers, laid

DEPTH_MAX: Final = 512

MISSING, NULL, TRUE, FALSE, INTEGER, DECIMAL, STRING, ESCAPED, OBJECT, ARRAY = range(10)
"""Kinds of values.  ESCAPED is a string that has to be unescaped, DECIMAL any other number."""

FAULTS: Final = (
    "", "EOF while parsing a value", "expected value", "expected `:`", "expected `,` or `}`",
    "expected `,` or `]`", "key must be a string", "invalid number", "invalid escape",
    "control character in a string", "lone surrogate in a string", "EOF while parsing a string",
    "trailing characters", "recursion limit exceeded", "expected an object",
)
(FINE, EOF_VALUE, NO_VALUE, NO_COLON, NO_COMMA_OBJECT, NO_COMMA_ARRAY, NO_KEY, BAD_NUMBER,
 BAD_ESCAPE, CONTROL, LONE_SURROGATE, EOF_STRING, TRAILING, TOO_DEEP, NOT_OBJECT) = range(15)

Kinds = npt.NDArray[np.uint8]


class Values(NamedTuple):
    """One value of each row, or of each element."""

    kinds: Kinds
    starts: Numbers  # of strings: within the quotes
    ends: Numbers


class JsonFaults(NamedTuple):
    """The rows that are no JSON, the code of the fault of each, and its byte within the row."""

    rows: Numbers
    codes: Kinds
    positions: Numbers


_SPACE = re.compile(rb"[ \t\n\r]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPES: Final = {
    ord('"'): b'"', ord("\\"): b"\\", ord("/"): b"/", ord("b"): b"\b", ord("f"): b"\f",
    ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t",
}
_LITERALS: Final = ((b"true", TRUE), (b"false", FALSE), (b"null", NULL))


class _Broken(Exception):
    def __init__(self, code: int, position: int) -> None:
        super().__init__()
        self.code = code
        self.position = position


class _Scan:
    """A scan over one row's text, from its position `at` on."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def space(self) -> int:
        """Skip white space; the byte after it, -1 at the end."""
        match = _SPACE.match(self.data, self.at)
        assert match is not None
        self.at = match.end()
        return self.data[self.at] if self.at < len(self.data) else -1

    def broken(self, code: int) -> _Broken:
        is_end = self.at >= len(self.data) and code != EOF_STRING
        return _Broken(EOF_VALUE if is_end else code, self.at)

    def string(self) -> tuple[int, int, int]:
        """Kind, start and end of the string whose opening quote is here."""
        kind, start = STRING, self.at + 1
        self.at = start
        while True:
            match = _PLAIN.match(self.data, self.at)
            assert match is not None
            self.at = match.end()
            if self.at >= len(self.data):
                raise self.broken(EOF_STRING)
            if self.data[self.at] == ord('"'):
                self.at += 1
                return kind, start, self.at - 1
            if self.data[self.at] != ord("\\"):
                raise self.broken(CONTROL)
            kind = ESCAPED
            self._escape()

    def _escape(self) -> None:
        if self.at + 1 >= len(self.data):
            self.at = len(self.data)
            raise self.broken(EOF_STRING)
        if self.data[self.at + 1] in _ESCAPES:
            self.at += 2
            return
        unit = self._unit()
        if 0xD800 <= unit < 0xDC00:
            high, self.at = self.at, self.at + 6
            if self.data[self.at : self.at + 2] != b"\\u" or not (
                    0xDC00 <= self._unit() < 0xE000):
                self.at = high
                raise self.broken(LONE_SURROGATE)
        elif 0xDC00 <= unit < 0xE000:
            raise self.broken(LONE_SURROGATE)
        self.at += 6

    def _unit(self) -> int:
        """The number of the escape with four hexadecimal digits at this position."""
        match = _HEX.match(self.data, self.at + 2)
        if self.data[self.at + 1] != ord("u") or match is None:
            raise self.broken(BAD_ESCAPE)
        return int(match[0], 16)

    def key(self) -> tuple[int, int, int]:
        """A member's name, up to and with its colon."""
        if self.space() != ord('"'):
            raise self.broken(NO_KEY)
        found = self.string()
        if self.space() != ord(":"):
            raise self.broken(NO_COLON)
        self.at += 1
        return found

    def scalar(self, first: int) -> tuple[int, int, int]:
        if first == ord('"'):
            return self.string()
        start = self.at
        for text, kind in _LITERALS:
            if self.data.startswith(text, start):
                self.at += len(text)
                return kind, start, self.at
        match = _NUMBER.match(self.data, start)
        if match is None:
            raise self.broken(BAD_NUMBER if first == ord("-") else NO_VALUE)
        self.at = match.end()
        if self.data[self.at : self.at + 1] in {b".", b"e", b"E"} or (
                match[0] in {b"0", b"-0"} and self.data[self.at : self.at + 1].isdigit()):
            raise self.broken(BAD_NUMBER)
        return INTEGER if match[1] is match[2] is None else DECIMAL, start, self.at

    def value(self) -> tuple[int, int, int]:
        """Kind, start and end of the next value, after all of it was checked."""
        open_ones = bytearray()
        outermost = (MISSING, 0, 0)
        while True:
            first = self.space()
            start = self.at
            if first >= 0 and first in b"{[":
                if len(open_ones) == DEPTH_MAX:
                    raise self.broken(TOO_DEEP)
                if not open_ones:
                    outermost = (OBJECT if first == ord("{") else ARRAY, start, start)
                open_ones.append(first)
                self.at += 1
                if self.space() != first + 2:  # } and ] come two after { and [
                    if first == ord("{"):
                        self.key()
                    continue
            else:
                if first == -1:
                    raise self.broken(NO_VALUE)
                found = self.scalar(first)
                if not open_ones:
                    return found
            if self._closes(open_ones):
                return outermost[0], outermost[1], self.at

    def _closes(self, open_ones: bytearray) -> bool:
        """After a value: is the outermost one complete?  If not, the position is at the next."""
        while open_ones:
            after = self.space()
            if after == open_ones[-1] + 2:
                self.at += 1
                open_ones.pop()
            elif after == ord(","):
                self.at += 1
                if open_ones[-1] == ord("{"):
                    self.key()
                return False
            else:
                raise self.broken(
                    NO_COMMA_OBJECT if open_ones[-1] == ord("{") else NO_COMMA_ARRAY)
        return True

    def finish(self) -> None:
        if self.space() != -1:
            raise self.broken(TRAILING)


def check(documents: pa.StringArray) -> JsonFaults:
    """The rows that are not one JSON value of any kind; null rows are accepted."""
    faults = []
    for row, document in enumerate(documents.to_pylist()):
        if document is not None:
            scan = _Scan(document.encode())
            try:
                scan.value()
                scan.finish()
            except _Broken as broken:
                faults.append((row, broken.code, broken.position))
    return _faults(faults)


def members(documents: pa.StringArray, names: list[bytes]) -> tuple[list[Values], JsonFaults]:
    """The members with these names of each row's object, and the rows that are no object."""
    place = laid(documents)
    count = len(documents)
    found = [Values(np.zeros(count, np.uint8), np.empty(count, np.int32),
                    np.empty(count, np.int32)) for _ in names]
    after = [int(place.offsets[0])] * len(names)
    faults = []
    for row, document in enumerate(documents.to_pylist()):
        at: dict[bytes, tuple[int, int, int]] = {}
        if document is not None:
            try:
                at = _members_of(document.encode())
            except _Broken as broken:
                faults.append((row, broken.code, broken.position))
        for index, name in enumerate(names):
            kinds, starts, ends = found[index]
            if name in at:
                kinds[row], start, end = at[name]
                start, end = start + place.offsets[row], end + place.offsets[row]
            else:
                start = end = after[index]
            starts[row], ends[row] = start, end
            after[index] = end
    return found, _faults(faults)


def _members_of(data: bytes) -> dict[bytes, tuple[int, int, int]]:
    scan = _Scan(data)
    found: dict[bytes, tuple[int, int, int]] = {}
    if scan.space() != ord("{"):
        scan.value()  # raises if it is no JSON at all
        scan.finish()
        raise _Broken(NOT_OBJECT, 0)
    scan.at += 1
    if scan.space() == ord("}"):
        scan.at += 1
        scan.finish()
        return found
    while True:
        kind, start, end = scan.key()
        name = data[start:end] if kind == STRING else _unescape(data[start:end])
        found[name] = scan.value()
        after = scan.space()
        if after == -1 or after not in b",}":
            raise scan.broken(NO_COMMA_OBJECT)
        scan.at += 1
        if after == ord("}"):
            scan.finish()
            return found


def elements(documents: pa.StringArray) -> tuple[Numbers, Values]:
    """The elements of all rows, each a JSON array or null; and the index after each row's last."""
    place = laid(documents)
    ends = np.zeros(len(documents) + 1, np.int32)
    found = []
    for row, document in enumerate(documents.to_pylist()):
        if document is not None:
            found += [(kind, start + place.offsets[row], end + place.offsets[row])
                      for kind, start, end in _elements_of(document.encode())]
        ends[row + 1] = len(found)
    kinds, starts, stops = zip(*found, strict=True) if found else ((), (), ())
    return ends, Values(np.array(kinds, np.uint8), np.array(starts, np.int32),
                        np.array(stops, np.int32))


def _elements_of(data: bytes) -> list[tuple[int, int, int]]:
    scan = _Scan(data)
    assert scan.space() == ord("[")
    scan.at += 1
    found = []
    while scan.space() != ord("]"):
        found.append(scan.value())
        if scan.space() == ord(","):
            scan.at += 1
    return found


def unescaped(texts: pa.StringArray, kinds: Kinds) -> pa.StringArray:
    """The texts, with those of kind ESCAPED unescaped."""
    return pa.array([
        text if text is None or kind != ESCAPED else _unescape(text.encode()).decode()
        for text, kind in zip(texts.to_pylist(), kinds.tolist(), strict=True)
    ], pa.string())


def _unescape(data: bytes) -> bytes:
    out = bytearray()
    at = 0
    while (next_at := data.find(b"\\", at)) >= 0:
        out += data[at:next_at]
        escape = data[next_at + 1]
        at = next_at + 2
        if escape != ord("u"):
            out += _ESCAPES[escape]
            continue
        unit = int(data[at : at + 4], 16)
        at += 4
        if 0xD800 <= unit < 0xDC00:
            unit = 0x10000 + ((unit - 0xD800) << 10) + int(data[at + 2 : at + 6], 16) - 0xDC00
            at += 6
        out += chr(unit).encode()
    return bytes(out + data[at:])


def _faults(found: list[tuple[int, int, int]]) -> JsonFaults:
    rows, codes, positions = zip(*found, strict=True) if found else ((), (), ())
    return JsonFaults(np.array(rows, np.int32), np.array(codes, np.uint8),
                  np.array(positions, np.int32))
