"""Spark's complaints about a query, as our own.

`explained` is for those about its text: one sentence, the place, what to write instead.

`plain_errors` is for those of its rows.  A DataFrame does nothing until somebody wants its rows;
what its tasks find wrong then comes back as Spark's PythonException, a text with the traceback of
the worker in it.  Around whatever computes the DataFrame, it becomes what the task has raised:

    with plain_errors():
        rows = pipeline.execute("SELECT * FROM a_strict_source").collect()  # OutstandingErrors
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PythonException

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.text import Span

_OUTSTANDING = re.compile(
    rf"^{re.escape(OutstandingErrors.__module__)}\.OutstandingErrors: (?P<text>.+)$", re.MULTILINE)
_CLASS = re.compile(r"^\s*\[[A-Z_.0-9]+\] ")
_AFTER = re.compile(r"\s*(SQLSTATE: |== SQL|; line \d+ pos).*", re.DOTALL)
_PLACE = re.compile(r"\(line (?P<line>\d+), pos (?P<column>\d+)\)")
_SUGGESTION = re.compile(r"\s*Did you mean one of the following\? \[(?P<names>[^\]]*)\]\.?")
_SEARCHED = re.compile(r"\s*(?:on search path \[[^\]]*\]|Verify the spelling.*)", re.DOTALL)


@contextmanager
def explained(query: str, start: int) -> Iterator[None]:
    """What Spark finds wrong with a query that stands at `start` in what the user wrote."""
    try:
        yield
    except AnalysisException as error:
        message = _AFTER.sub("", _CLASS.sub("", str(error)))
        names = _SUGGESTION.search(message)
        message = _SEARCHED.sub("", _SUGGESTION.sub("", message)).strip()
        place = _place(error, query)
        raise SqlError(
            message, Span(start + place.start, start + place.end),
            hint=f"did you mean {names['names'].replace('`', '')}?" if names else "",
        ) from None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors of strict sources that tasks have found, as `OutstandingErrors`."""
    try:
        yield
    except PythonException as error:
        if found := _OUTSTANDING.search(str(error)):
            raise OutstandingErrors(found["text"]) from None
        raise


def _place(error: AnalysisException, query: str) -> Span:
    for context in error.getQueryContext():
        return Span(context.startIndex(), context.stopIndex() + 1)
    if found := _PLACE.search(str(error)):
        lines = query.split("\n")[: int(found["line"]) - 1]
        start = sum(len(line) + 1 for line in lines) + int(found["column"])
        word = re.match(r"\w+|.", query[start:])
        return Span(start, start + len(word[0]) if word else start + 1)
    return Span(0, len(query))
