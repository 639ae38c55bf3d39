"""Log lines about what others do wrong: limited in rate and in length.

Whoever can make a node log can fill its disk and hide what matters.  So lines about strangers, bad
requests and bad peers go through a `LimitedLog`: LINES_MAX in PERIOD_SECONDS, each of MESSAGE_MAX
characters at most and without line breaks; the next one that is logged says how many were left out.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 10
PERIOD_SECONDS: Final = 10.0
MESSAGE_MAX: Final = 400  # characters


def one_line(text: str, length_max: int = MESSAGE_MAX) -> str:
    """`text` as it may be logged: printable, on one line, and not too long."""
    cut = text[:length_max]
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)
    return shown if len(text) <= length_max and len(shown) <= length_max else (
        shown[:length_max] + "...")


class LimitedLog:
    """A logger that logs a few lines of a kind, and counts the others."""

    def __init__(
        self, logger: logging.Logger, now: Callable[[], float] = time.monotonic, *,
        lines_max: int = LINES_MAX, period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._logger = logger
        self._now = now
        self._lines_max = lines_max
        self._period_seconds = period_seconds
        self._period_end = float("-inf")
        self._lines = 0  # in this period
        self.left_out = 0  # since the last line

    def log(self, level: int, message: str, *args: object) -> None:
        """Log one line, unless this period has had enough of them."""
        now = self._now()
        if now >= self._period_end:
            self._period_end, self._lines = now + self._period_seconds, 0
        if self._lines >= self._lines_max:
            self.left_out += 1
            return
        self._lines += 1
        text = one_line(message % args if args else message)
        if self.left_out:
            text += f" ({self.left_out} more such lines were left out)"
            self.left_out = 0
        self._logger.log(level, "%s", text)

    def warning(self, message: str, *args: object) -> None:
        self.log(logging.WARNING, message, *args)

    def error(self, message: str, *args: object) -> None:
        self.log(logging.ERROR, message, *args)
