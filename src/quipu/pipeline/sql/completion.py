"""What may be written next: words for an interactive shell.

The text up to the cursor is parsed; where it breaks off, the grammar says what it wanted.
"""

from collections.abc import Mapping, Sequence

from quipu.pipeline.sql.cursor import Cursor
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import Kind, Piece, Token, split
from quipu.pipeline.sql.parser import STATEMENTS, parse_cursor
from quipu.pipeline.sql.printer import quote_name
from quipu.pipeline.sql.statements import ObjectKind
from quipu.pipeline.sql.text import Span

QUERY_COMPLETIONS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN",
    "ON", "UNION ALL", "AS", "AND", "OR", "NOT", "NULL", "DISTINCT", "CASE", "WHEN", "THEN", "ELSE",
    "END", "BETWEEN", "IN", "LIKE", "IS", "COUNT", "SUM", "MIN", "MAX", "AVG",
)
Names = Mapping[ObjectKind, Sequence[str]]  # what the catalog holds


def complete(text: str, names: Names) -> list[str]:
    """The words that can stand where the text ends; the last word of it may be begun."""
    found = split(text)
    if not found or found[-1].ended:
        return list(STATEMENTS)
    piece = found[-1]
    begun = ""
    last = piece.tokens[-2]
    if last.kind is Kind.WORD and last.span.end == len(text):
        begun = last.value
        piece = _without_last(piece)
    if last.kind is Kind.BAD:
        return []
    return [word for word in _wanted(text, piece, names)
            if word.lower().startswith(begun.lower())]


def _without_last(piece: Piece) -> Piece:
    end = piece.tokens[-2].span.start
    return piece._replace(tokens=(*piece.tokens[:-2], Token(Kind.END, "", Span(end, end))))


def _wanted(text: str, piece: Piece, names: Names) -> list[str]:
    readable = [*names.get(ObjectKind.SOURCE, ()), *names.get(ObjectKind.VIEW, ())]
    in_query = piece.query_start is not None and len(piece.tokens) - 1 > piece.query_start
    if in_query:
        return [*map(quote_name, readable), *QUERY_COMPLETIONS]
    cursor = Cursor(text, piece)
    try:
        parse_cursor(cursor)
    except SqlError:
        if not cursor.at_end:
            return []  # broken off before the end: there is nothing to complete
    offered = [name for kind in ObjectKind if kind in cursor.wanted.names
               for name in names.get(kind, ())]
    return [*map(quote_name, offered), *cursor.wanted.words]
