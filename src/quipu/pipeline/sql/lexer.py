r"""Splits text into tokens, and a script into statements.

A script has two languages.  In Quipu's statements, a backslash in a string is a backslash
(`REGEX '\w+'`), and quotes are doubled.  Queries are in Spark's language: a backslash escapes, and
double quotes enclose strings too.  A query begins at SELECT, WITH, VALUES, FROM or a parenthesis at
the start of a statement or after EXPLAIN, and after the AS of CREATE VIEW; it ends with its
statement.

The lexer never fails: text that it cannot read is a token of kind BAD whose value says why, so that
`secrets` and the shell can read any text.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from quipu.pipeline.sql.text import TextSpan

NUMBER_LENGTH_MAX = 30
OPENING_MAX = 6  # EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW
QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM"})


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"  # a keyword or a name; the grammar decides which
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    BAD = "bad"
    END = "end"


class Token(NamedTuple):
    """One token; `value` is without quotes, and as written otherwise."""

    kind: TokenKind
    value: str
    span: TextSpan

    def is_word(self, word: str) -> bool:
        return self.kind is TokenKind.WORD and self.value.upper() == word

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is TokenKind.SYMBOL and self.value == symbol


class TokenizedStatement(NamedTuple):
    """One statement of a script."""

    span: TextSpan  # without the semicolon, and without blanks and comments around it
    tokens: tuple[Token, ...]  # the last one is END
    ended: bool  # by a semicolon
    query_start: int | None  # index of the token where Spark's language begins


_BLANK = re.compile(r"\s+|--[^\n]*")
_SPARKS_BLANK = re.compile(r"\s+|--(?:\\\n|[^\n])*")  # a backslash continues a comment
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_OURS = {
    "'": re.compile(r"'([^']*(?:''[^']*)*)'"),
    '"': re.compile(r'"([^"]*(?:""[^"]*)*)"'),
    "`": re.compile(r"`([^`]*(?:``[^`]*)*)`"),
}
_SPARKS = {
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "`": _OURS["`"],
}
_RAW = re.compile(r"[rR](?:'([^']*)'|\"([^\"]*)\")")
_CREATE_VIEW = re.compile(r"(EXPLAIN )?CREATE (OR REPLACE )?(MATERIALIZED )?VIEW\b")
_QUOTE_NAMES = {"'": "string", '"': "quoted name", "`": "quoted name"}


def split(text: str) -> tuple[TokenizedStatement, ...]:
    r"""The statements of a script; empty ones are left out.

    >>> [piece.span for piece in split("SHOW SOURCES; -- ';'\\nSELECT ';'")]
    [Span(start=0, end=12), Span(start=21, end=31)]
    """
    pieces = []
    position = 0
    while position < len(text):
        scanner = _Scanner(text, position)
        tokens = list(scanner.run())
        position = scanner.position
        if len(tokens) > 1:
            span = tokens[0].span.to(tokens[-2].span)
            pieces.append(
                TokenizedStatement(span, tuple(tokens), scanner.ended, scanner.query_start))
    return tuple(pieces)


def query_tokens(query: str) -> tuple[Token, ...]:
    """The tokens of a text that is a query, in Spark's language."""
    scanner = _Scanner(query, 0)
    scanner.query_start = 0
    return tuple(scanner.run())


class _Scanner:
    """Reads one statement, up to its semicolon."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.ended = False
        self.query_start: int | None = None
        self._opening: list[str] = []  # the first words of the statement
        self._count = 0

    def run(self) -> Iterator[Token]:
        last_end = self.position
        while (token := self._next()) is not None:
            if token.is_symbol(";"):
                self.ended = True
                yield Token(TokenKind.END, "", token.span)
                return
            self._watch(token)
            self._count += 1
            last_end = token.span.end
            yield token
        yield Token(TokenKind.END, "", TextSpan(last_end, last_end))

    def _watch(self, token: Token) -> None:
        """Notice where a query begins."""
        if self.query_start is not None:
            return
        word = token.value.upper() if token.kind is TokenKind.WORD else ""
        begins = self._opening in ([], ["EXPLAIN"]) and (
            word in QUERY_WORDS or token.is_symbol("("))
        if begins and self._count == len(self._opening):
            self.query_start = self._count
        elif word == "AS" and _CREATE_VIEW.match(" ".join(self._opening)):
            self.query_start = self._count + 1
        elif word and len(self._opening) < OPENING_MAX:
            self._opening.append(word)

    def _next(self) -> Token | None:
        is_query = self.query_start is not None and self._count >= self.query_start
        bad = self._skip_blanks(_SPARKS_BLANK if is_query else _BLANK)
        if bad is not None:
            return bad
        if self.position >= len(self.text):
            return None
        start, text = self.position, self.text
        quotes = _SPARKS if is_query else _OURS
        if is_query and (raw := _RAW.match(text, start)):
            return self._token(TokenKind.STRING, raw[1] or raw[2] or "", raw.end())
        if text[start] in quotes:
            return self._quoted(quotes[text[start]])
        if word := _WORD.match(text, start):
            return self._token(TokenKind.WORD, word[0], word.end())
        if number := _NUMBER.match(text, start):
            if len(number[0]) > NUMBER_LENGTH_MAX:
                return self._token(TokenKind.BAD, "This number is too long", number.end())
            return self._token(TokenKind.NUMBER, number[0], number.end())
        return self._token(TokenKind.SYMBOL, text[start], start + 1)

    def _quoted(self, pattern: re.Pattern[str]) -> Token:
        quote = self.text[self.position]
        found = pattern.match(self.text, self.position)
        if found is None:
            return self._token(
                TokenKind.BAD, f"This {_QUOTE_NAMES[quote]} has no end", len(self.text))
        kind = TokenKind.STRING if quote == "'" else TokenKind.QUOTED
        return self._token(kind, found[1].replace(quote * 2, quote), found.end())

    def _skip_blanks(self, blanks: re.Pattern[str]) -> Token | None:
        while True:
            if blank := blanks.match(self.text, self.position):
                self.position = blank.end()
            elif self.text.startswith("/*", self.position):
                end = _end_of_comment(self.text, self.position)
                if end is None:
                    return self._token(TokenKind.BAD, "This comment has no end", len(self.text))
                self.position = end
            else:
                return None

    def _token(self, kind: TokenKind, value: str, end: int) -> Token:
        start, self.position = self.position, end
        return Token(kind, value, TextSpan(start, end))


def _end_of_comment(text: str, start: int) -> int | None:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return None
