"""Log lines that a client or peer can cause: limited in rate and length, and never forged.

A peer that sends a thousand bad requests a second must not fill the operator's disk, nor bury
other log lines, nor write lines that look like the node's own.

Invariants
    runtime.L1  of one kind of event at most BURST lines are written at once, and one more for each
                REFILL_SECONDS that pass; suppressed lines are counted, and the next line, or
                `report`, says how many there were
    runtime.L2  a line has at most LINE_SIZE_MAX characters, and takes bounded time to make,
                whatever was sent
    runtime.L3  line breaks and control characters are escaped

A kind is a constant in the code that logs, never something that was received.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BURST: Final = 10
REFILL_SECONDS: Final = 1.0
LINE_SIZE_MAX: Final = 500
KINDS_MAX: Final = 100  # kinds are constants in the code: more of them are a bug, and share OTHER
OTHER: Final = "other"


@dataclass(slots=True)
class _Budget:
    """The token bucket of one kind of event."""

    tokens: float
    since: float
    left_out: int = 0


class LimitedLog:
    """Writes to `log`, within limits per kind of event."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._budgets: dict[str, _Budget] = {}
        self.left_out = 0  # lines that were suppressed since the start

    def info(self, kind: str, message: str, *args: object) -> None:
        """Log an event of `kind` that is no error."""
        self._write(logging.INFO, kind, message, args)

    def warning(self, kind: str, message: str, *args: object) -> None:
        """Log an event of `kind`: a client or peer broke a rule or a limit."""
        self._write(logging.WARNING, kind, message, args)

    def exception(self, kind: str, message: str, *args: object) -> None:
        """Log a bug of this node that a client or peer triggered, with its traceback."""
        self._write(logging.ERROR, kind, message, args, traceback=True)

    def report(self) -> None:
        """Log how many lines were suppressed since the last one; to be called by a timer."""
        now = self._now()
        for kind, budget in self._budgets.items():
            if budget.left_out and self._take(budget, now):
                self._log.warning("%s: %d more were left out of the log", kind, budget.left_out)
                budget.left_out = 0

    def _write(
        self, level: int, kind: str, message: str, args: tuple[object, ...], *,
        traceback: bool = False,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        now = self._now()
        budget = self._budgets.get(kind)
        if budget is None:
            if len(self._budgets) >= KINDS_MAX:
                kind = OTHER
            budget = self._budgets.setdefault(kind, _Budget(BURST, now))
        if not self._take(budget, now):  # runtime.L1
            budget.left_out += 1
            self.left_out += 1
            return
        text = one_line(message % tuple(map(_cut_argument, args)) if args else message)
        if budget.left_out:
            text += f" ({kind}: {budget.left_out} more were left out of the log)"
            budget.left_out = 0
        self._log.log(level, "%s", text, exc_info=traceback)

    @staticmethod
    def _take(budget: _Budget, now: float) -> bool:
        budget.tokens = min(BURST, budget.tokens + (now - budget.since) / REFILL_SECONDS)
        budget.since = now
        if budget.tokens < 1:
            return False
        budget.tokens -= 1
        return True


def one_line(text: str, size_max: int = LINE_SIZE_MAX) -> str:
    """`text` with what is not printable escaped (runtime.L3), cut to `size_max` (runtime.L2)."""
    is_cut = len(text) > size_max
    text = text[:size_max]
    if not text.isprintable():
        text = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode()
            for char in text
        )
        is_cut = is_cut or len(text) > size_max
    return f"{text[: size_max - 3]}..." if is_cut else text


def _cut_argument(argument: object) -> object:
    """`argument`, cut if it is text or bytes, before it is formatted."""
    if isinstance(argument, str | bytes | bytearray | memoryview):
        return argument[:LINE_SIZE_MAX]
    return argument
