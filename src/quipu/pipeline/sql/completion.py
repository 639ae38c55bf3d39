"""Which words may come next in a statement, for an interactive shell.

The text up to the cursor is parsed; the words that the parser expected at its end are offered.
"""

from collections.abc import Mapping, Sequence

from quipu.pipeline.sql.cursor import TokenCursor
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import Token, TokenizedStatement, TokenKind, split
from quipu.pipeline.sql.parser import STATEMENTS, parse_cursor
from quipu.pipeline.sql.printer import quote_name
from quipu.pipeline.sql.statements import ObjectKind
from quipu.pipeline.sql.text import TextSpan

QUERY_COMPLETIONS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN",
    "ON", "UNION ALL", "AS", "AND", "OR", "NOT", "NULL", "DISTINCT", "CASE", "WHEN", "THEN", "ELSE",
    "END", "BETWEEN", "IN", "LIKE", "IS", "COUNT", "SUM", "MIN", "MAX", "AVG",
)
Names = Mapping[ObjectKind, Sequence[str]]  # the objects of the catalog


def complete(text: str, names: Names) -> list[str]:
    """The words that may come at the end of a text, or that complete its last word."""
    found = split(text)
    if not found or found[-1].ended:
        return list(STATEMENTS)
    piece = found[-1]
    begun = ""
    last = piece.tokens[-2]
    if last.kind is TokenKind.WORD and last.span.end == len(text):
        begun = last.value
        piece = _without_last(piece)
    if last.kind is TokenKind.BAD:
        return []
    return [word for word in _wanted(text, piece, names)
            if word.lower().startswith(begun.lower())]


def _without_last(piece: TokenizedStatement) -> TokenizedStatement:
    end = piece.tokens[-2].span.start
    return piece._replace(tokens=(*piece.tokens[:-2], Token(TokenKind.END, "", TextSpan(end, end))))


def _wanted(text: str, piece: TokenizedStatement, names: Names) -> list[str]:
    readable = [*names.get(ObjectKind.SOURCE, ()), *names.get(ObjectKind.VIEW, ())]
    in_query = piece.query_start is not None and len(piece.tokens) - 1 > piece.query_start
    if in_query:
        return [*map(quote_name, readable), *QUERY_COMPLETIONS]
    cursor = TokenCursor(text, piece)
    try:
        parse_cursor(cursor)
    except SqlError:
        if not cursor.at_end:
            return []  # an error before the end: there is nothing to complete
    offered = [name for kind in ObjectKind if kind in cursor.wanted.names
               for name in names.get(kind, ())]
    return [*map(quote_name, offered), *cursor.wanted.words]
