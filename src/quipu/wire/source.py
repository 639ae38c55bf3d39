"""Python functions put together from lines of text.

Codecs (encoder.py, decoder.py) and constructors (schema.py) are written this way, one function
per struct.  Values that a function needs are handed to it under names of their own; nothing that
comes from outside the definitions ever becomes part of a line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The text of one function, and the values that it refers to."""

    def __init__(self, function: str, title: str) -> None:
        self._function = function
        self._title = title  # what a traceback calls it
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
        """A name that nothing else in the function has."""
        return self.value(prefix, None)

    def value(self, prefix: str, value: Any) -> str:
        """A name for a value that exists already."""
        made = f"{prefix}{len(self._names)}"
        self._names[made] = value
        return made

    def compile(self, parameters: str, **values: Any) -> Any:
        """The function, with `values` under their own names besides."""
        scope = self._names | values
        text = "\n".join([f"def {self._function}({parameters}):", *self._lines])
        exec(compile(text, f"<{self._title}>", "exec"), scope)  # noqa: S102 made of our own lines
        return scope[self._function]
