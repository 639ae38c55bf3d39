"""Rewrites names in double quotes for Spark, which reads "a" as a string.

A user who writes `OFFSET AS "Off"` in a source writes "Off" in a SELECT, and would get a column of
the text Off.  So names in double quotes are replaced by names in backquotes in place, and
positions in Spark's errors are positions in the original text.
"""

from quipu.pipeline.sql.lexer import TokenKind, split


def quote_names(query: str) -> str:
    r"""The query with its names in double quotes put in backquotes.

    >>> quote_names('SELECT "Off", \'"\' FROM "t"')
    'SELECT `Off`, \'"\' FROM `t`'
    """
    parts = []
    position = 0
    for piece in split(query):
        for token in piece.tokens:
            start, end = token.span
            if token.kind is TokenKind.QUOTED and query[start] == '"':
                parts += [query[position:start], quoted(token.value)]
                position = end
    return "".join([*parts, query[position:]])


def quoted(name: str) -> str:
    """A name in backquotes, which Spark reads as a name with any characters."""
    return "`" + name.replace("`", "``") + "`"
