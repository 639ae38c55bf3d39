"""Turns Spark's errors about a query into SqlError and OutstandingErrors.

`explained` is for errors in the text of a query: one sentence, the place, and a hint.

`plain_errors` is for errors in its rows.  A DataFrame is computed only when its rows are needed; an
error in a task is then raised as Spark's PythonException, with the worker's traceback in its text.
Around the call that computes the DataFrame, `plain_errors` raises the error of the task instead:

    with plain_errors():
        rows = pipeline.execute("SELECT * FROM a_strict_source").collect()  # OutstandingErrors
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PythonException

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.text import TextSpan

_OUTSTANDING = re.compile(
    rf"^{re.escape(OutstandingErrors.__module__)}\.OutstandingErrors: (?P<text>.+)$", re.MULTILINE)
_CLASS = re.compile(r"^\s*\[[A-Z_.0-9]+\] ")
_AFTER = re.compile(r"\s*(SQLSTATE: |== SQL|; line \d+ pos).*", re.DOTALL)
_PLACE = re.compile(r"\(line (?P<line>\d+), pos (?P<column>\d+)\)")
_SUGGESTION = re.compile(r"\s*Did you mean one of the following\? \[(?P<names>[^\]]*)\]\.?")
_SEARCHED = re.compile(r"\s*(?:on search path \[[^\]]*\]|Verify the spelling.*)", re.DOTALL)


@contextmanager
def explained(query: str, start: int) -> Iterator[None]:
    """Raise Spark's AnalysisException as SqlError; the query begins at `start` of a text."""
    try:
        yield
    except AnalysisException as error:
        message = _AFTER.sub("", _CLASS.sub("", str(error)))
        names = _SUGGESTION.search(message)
        message = _SEARCHED.sub("", _SUGGESTION.sub("", message)).strip()
        place = _place(error, query)
        raise SqlError(
            message, TextSpan(start + place.start, start + place.end),
            hint=f"did you mean {names['names'].replace('`', '')}?" if names else "",
        ) from None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise Spark's PythonException as `OutstandingErrors`, if a task has raised that."""
    try:
        yield
    except PythonException as error:
        if found := _OUTSTANDING.search(str(error)):
            raise OutstandingErrors(found["text"]) from None
        raise


def _place(error: AnalysisException, query: str) -> TextSpan:
    for context in error.getQueryContext():
        return TextSpan(context.startIndex(), context.stopIndex() + 1)
    if found := _PLACE.search(str(error)):
        lines = query.split("\n")[: int(found["line"]) - 1]
        start = sum(len(line) + 1 for line in lines) + int(found["column"])
        word = re.match(r"\w+|.", query[start:])
        return TextSpan(start, start + len(word[0]) if word else start + 1)
    return TextSpan(0, len(query))
