"""Python functions put together from lines of text.

The codecs (encoder.py, decoder.py) write one function per struct and version.  Values that a
function needs are handed to it under names of their own; nothing that comes from outside the
definitions ever becomes part of a line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The text of one function, and the values that it refers to."""

    def __init__(self, signature: str, title: str) -> None:
        self._signature = signature
        self._title = title
        self._lines = [f"def {signature}:"]
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
        self._names[made := f"{prefix}{len(self._names)}"] = None
        return made

    def value(self, prefix: str, value: Any) -> str:
        """A name for a value made here."""
        made = self.name(prefix)
        self._names[made] = value
        return made

    def compile(self, **values: Any) -> Any:
        """The function, with `values` under their own names besides."""
        scope = self._names | values
        text = "\n".join(self._lines)
        exec(compile(text, f"<{self._title}>", "exec"), scope)  # noqa: S102 made of our own lines
        return scope[self._signature.partition("(")[0]]
