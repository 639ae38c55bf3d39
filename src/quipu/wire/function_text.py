"""Builds Python functions from lines of text.

Codecs (encoder.py, decoder.py) and constructors (schema.py) are generated this way, one function
per struct.  Values that a function needs are passed to it as variables; only text from the message
definitions becomes part of a line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FunctionText:
    """The text of one function, and the values that it refers to."""

    def __init__(self, function: str, title: str) -> None:
        self._function = function
        self._title = title  # the file name in a traceback
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A new variable name, used nowhere else in the function."""
        return self.value(prefix, None)

    def value(self, prefix: str, value: Any) -> str:
        """A new variable name that refers to `value`."""
        made = f"{prefix}{len(self._names)}"
        self._names[made] = value
        return made

    def compile(self, parameters: str, **values: Any) -> Any:
        """Compile the function; it can also refer to `values` by their names."""
        scope = self._names | values
        text = "\n".join([f"def {self._function}({parameters}):", *self._lines])
        exec(compile(text, f"<{self._title}>", "exec"), scope)  # noqa: S102 made of our own lines
        return scope[self._function]
