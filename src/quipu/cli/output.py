"""The output of commands: a table, or JSON lines.

On a terminal a table has rules and colours; elsewhere it is plain aligned text of any width, so
that `grep`, `awk` and a mail get every character.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

Row = Mapping[str, object]


def show(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool, title: str = "") -> None:
    """Print `rows`: every field as JSON, or `columns` as a table."""
    if as_json:
        for row in rows:
            print_json(row)
    elif sys.stdout.isatty():
        _rich_table(rows, columns, title)
    else:
        if title:
            print(title)
        print(plain_table(rows, columns), end="")


def print_json(value: Row, *, file: TextIO | None = None) -> None:
    """One JSON object on a line of its own."""
    print(json.dumps(value, ensure_ascii=False, default=str), file=file)


def plain_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Aligned columns; numbers to the right, the last column unpadded."""
    cells = [[cell(row.get(name)) for name in columns] for row in rows]
    right = [_is_numeric([row.get(name) for row in rows]) for name in columns]
    header = [name.upper().replace("_", " ") for name in columns]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    lines = []
    for words in (header, *cells):
        padded = [
            word.rjust(width) if at_right else word.ljust(width)
            for word, width, at_right in zip(words, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip() + "\n")
    return "".join(lines)


def cell(value: object) -> str:
    """A value in a table; one that is unknown, unset or empty is a dash."""
    match value:
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(cell(item) for item in value)
        case _:
            return printable(str(value))


def printable(text: str) -> str:
    """`text` with line breaks and the control characters of terminals escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def count(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def note(text: str, *, file: TextIO | None = None) -> None:
    """Write a remark for the user to standard error, apart from the output."""
    print(text, file=file if file is not None else sys.stderr)


def _is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) for value in known)


def _rich_table(rows: Sequence[Row], columns: Sequence[str], title: str) -> None:
    from rich import box  # noqa: PLC0415 only where there is a terminal
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
    for name in columns:
        right = _is_numeric([row.get(name) for row in rows])
        table.add_column(name.replace("_", " "), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(cell(row.get(name))) for name in columns))
    Console().print(table)
