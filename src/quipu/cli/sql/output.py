"""The output of rows by `quipu sql`: a table of aligned text, or JSON lines.

Rows come in blocks, so that a long result is shown while it arrives.  Column names keep their case;
NULL is shown as NULL and differs from an empty text; bytes are hexadecimal in tables and base64 in
JSON; times are ISO 8601.
"""

import base64
import datetime as dt
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, TextIO

from quipu.cli.output import count, note, printable

CELL_WIDTH_MAX: Final = 120  # characters of a cell in a table; JSON has all of them
ROWS_SHOWN_MAX: Final = 1_000  # on a terminal; elsewhere every row

Block = Sequence[Sequence[Any]]  # rows of values


class Heading(NamedTuple):
    """A column of a result."""

    name: str
    is_number: bool = False


class Writer:
    """Writes the rows of one result; the first block decides the widths of the columns."""

    def __init__(
        self, headings: Sequence[Heading], *, as_json: bool, out: TextIO | None = None,
        rows_max: int | None = None,
    ) -> None:
        self.row_count = 0
        self._headings = headings
        self._names = unique_names(headings)
        self._as_json = as_json
        self._out = out if out is not None else sys.stdout
        self._rows_max = rows_max
        self._widths: list[int] | None = None

    def write(self, block: Block) -> bool:
        """Write some rows; False if no more are wanted."""
        left = None if self._rows_max is None else self._rows_max - self.row_count
        rows = block if left is None else block[:left]
        if self._as_json:
            for row in rows:
                self._out.write(json_line(self._names, row))
        else:
            self._write_table(rows)
        self.row_count += len(rows)
        self._out.flush()
        return len(rows) == len(block)

    def write_all(self, blocks: Iterable[Block]) -> None:
        """Write every block, and a note with the number of rows."""
        more = False
        for block in blocks:
            if not self.write(block):
                more = True
                break
        if self._as_json:
            return
        if self._widths is None:
            self._write_table([])
        if more:
            note(f"the first {count(self.row_count, 'row')}; write LIMIT to choose, "
                 "or --json to get all of them")
        else:
            note(f"({count(self.row_count, 'row')})")

    def _write_table(self, rows: Block) -> None:
        cells = [[cell(value) for value in row] for row in rows]
        names = [printable(heading.name) for heading in self._headings]
        if self._widths is None:
            self._widths = [max(map(width, column)) for column in zip(names, *cells, strict=True)]
            self._out.write(self._line(names))
            self._out.write("  ".join("-" * each for each in self._widths) + "\n")
        for row in cells:
            self._out.write(self._line(row))

    def _line(self, words: Sequence[str]) -> str:
        assert self._widths is not None
        padded = []
        for word, wanted, heading in zip(words, self._widths, self._headings, strict=True):
            blank = " " * (wanted - width(word))
            padded.append(blank + word if heading.is_number else word + blank)
        return "  ".join(padded).rstrip() + "\n"


def width(text: str) -> int:
    """The number of character cells that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 only where letters are wide

    return cell_len(text)


def unique_names(headings: Sequence[Heading]) -> list[str]:
    """Different names for the fields of a JSON object: `a.id, b.id` become id, id_2."""
    taken: set[str] = set()
    names = []
    for heading in headings:
        name, number = heading.name, 2
        while name in taken:
            name, number = f"{heading.name}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def cell(value: Any) -> str:  # noqa: ANN401 whatever a column holds
    """A value in a table, on one line."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case bytes():
            text = f"\\x{value[:CELL_WIDTH_MAX].hex()}"
        case str():
            text = value
        case list() | dict():
            text = json.dumps(plain(value), ensure_ascii=False)
        case _:
            text = str(plain(value))
    shown = printable(text[:CELL_WIDTH_MAX + 1])
    return shown if len(shown) <= CELL_WIDTH_MAX else shown[:CELL_WIDTH_MAX - 1] + "…"


def json_line(names: Sequence[str], row: Sequence[Any]) -> str:
    """One row as a JSON object on a line."""
    values = {name: plain(value) for name, value in zip(names, row, strict=True)}
    return json.dumps(values, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:  # noqa: ANN401 whatever a column holds
    """A value of a JSON type.  Decimals become texts: as numbers they would lose digits."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return str(value)


def blocks_of(rows: Iterable[Sequence[Any]], size: int) -> Iterator[Block]:
    """Rows in blocks of at most `size`."""
    block: list[Sequence[Any]] = []
    for row in rows:
        block.append(row)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
