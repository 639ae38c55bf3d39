"""The log of a world: one line per event, in fixed columns, and a digest of all of them.

    seconds      who      what       about
     12.034500   n2       -> n1      raft 96 bytes, at 12.036

The digest covers every line; only the last lines are kept, because most worlds do not fail.
"""

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

LINES_KEPT: Final = 400


class Trace:
    """The log of one world."""

    def __init__(self, *, echo: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._echo = echo  # gets every line as it is written
        self._tail: deque[str] = deque(maxlen=LINES_KEPT)
        self._digest = blake2b(digest_size=16)

    def add(self, now: float, who: str, what: str, about: object = "") -> None:
        """Write one line."""
        line = f"{now:12.6f} {who:<8} {what:<10} {about}"
        self.count += 1
        self._tail.append(line)
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        if self._echo is not None:
            self._echo(line)

    @property
    def digest(self) -> str:
        """A digest of all lines: equal only for equal runs."""
        return self._digest.hexdigest()

    def tail(self, count: int = LINES_KEPT) -> list[str]:
        return list(self._tail)[-count:]
