"""Whether a node is alive and whether it serves, and why not.

*Live* means that the loop turns: a supervisor should not restart the process.  *Ready* means that
a client's request would be carried out now.  A node that recovers its logs is live but not ready;
so is one whose disk refuses writes, for a restart would not mend it.

    starting -> serving -> stopping
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where a node is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


_NEXT: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.STARTING: frozenset({Phase.SERVING, Phase.STOPPING}),
    Phase.SERVING: frozenset({Phase.STOPPING}),
    Phase.STOPPING: frozenset(),
}
assert _NEXT.keys() == set(Phase)

WARNINGS_MAX: Final = 100  # that are told at once

_WAIT: Final = {
    Phase.STARTING: "the node is starting: it recovers its logs and does not listen yet",
    Phase.STOPPING: "the node is stopping: it takes no new requests",
}


class Health:
    """What the health endpoints tell.  Problems make a node unready, warnings do not."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self._problems: dict[str, str] = {}
        self._checks: dict[str, Callable[[], str | None]] = {}
        self._warnings: dict[str, str] = {}
        self._watched: list[Callable[[], dict[str, str]]] = []

    def enter(self, phase: Phase) -> None:
        """Go on to `phase`; a life does not go backwards."""
        assert phase is self.phase or phase in _NEXT[self.phase], (self.phase, phase)
        self.phase = phase

    def fail(self, what: str, why: str) -> None:
        """Something without which the node cannot serve is broken: `disk`, for one."""
        self._problems[what] = why

    def mend(self, what: str) -> None:
        """What failed, or what was warned of, works again."""
        self._problems.pop(what, None)
        self._warnings.pop(what, None)

    def has_failed(self, what: str) -> bool:
        """Was `fail` told of it, and not `mend`?"""
        return what in self._problems

    def check(self, what: str, trouble: Callable[[], str | None]) -> None:
        """Have `trouble` asked whenever someone asks; what it says makes the node unready."""
        self._checks[what] = trouble

    def warn(self, what: str, why: str) -> None:
        """Something is wrong, and the node serves all the rest: a corrupt log, for one."""
        self._warnings[what] = why

    def watch(self, warnings: Callable[[], dict[str, str]]) -> None:
        """Have `warnings` asked whenever someone asks: what is wrong now, and why."""
        self._watched.append(warnings)

    @property
    def ready(self) -> bool:
        """True if a request would be carried out now."""
        return self.phase is Phase.SERVING and not self._troubles()

    @property
    def status(self) -> str:
        """One word: starting, ready, waiting, failed or stopping."""
        if self.phase is not Phase.SERVING:
            return self.phase.value
        if self._problems:
            return "failed"
        return "waiting" if self._troubles() else "ready"

    @property
    def reasons(self) -> list[str]:
        """Why the node is not ready; empty if it is."""
        waits = [_WAIT[self.phase]] if self.phase in _WAIT else []
        return waits + [f"{what}: {why}" for what, why in sorted(self._troubles().items())]

    def _troubles(self) -> dict[str, str]:
        """Everything without which the node cannot serve, now."""
        found = dict(self._problems)
        if self.phase is Phase.SERVING:
            for what, trouble in self._checks.items():
                if (why := trouble()) is not None:
                    found[what] = why
        return found

    @property
    def warnings(self) -> list[str]:
        """What an operator should look at although the node serves; the first of them."""
        found = dict(self._warnings)
        if self.phase is not Phase.STARTING:
            for watched in self._watched:
                found.update(watched())
        told = [f"{what}: {why}" for what, why in sorted(found.items())]
        left_out = len(told) - WARNINGS_MAX
        return told if left_out <= 0 else [*told[:WARNINGS_MAX], f"and {left_out} more"]
