"""Names in queries: the query language is Spark's, but a name in double quotes is a name.

Spark takes "a" for a string.  Who writes `OFFSET AS "Off"` in a source writes "Off" in a SELECT,
and would get a column full of the word Off.  So names in double quotes become names in backquotes,
in place: what Spark says about a position is true of the text as it was written.
"""

from quipu.pipeline.sql.lexer import Kind, split


def with_names(query: str) -> str:
    r"""The query with names in backquotes.

    >>> with_names('SELECT "Off", \'"\' FROM "t"')
    'SELECT `Off`, \'"\' FROM `t`'
    """
    parts = []
    position = 0
    for piece in split(query):
        for token in piece.tokens:
            start, end = token.span
            if token.kind is Kind.QUOTED and query[start] == '"':
                parts += [query[position:start], "`" + token.value.replace("`", "``") + "`"]
                position = end
    return "".join([*parts, query[position:]])
