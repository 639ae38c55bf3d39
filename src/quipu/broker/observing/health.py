"""Whether a node is alive, whether it is ready, and why not.

*Live* means that the event loop runs: a supervisor should not restart the process.  *Ready* means
that a client's request would be carried out now.  A node that recovers its logs is live but not
ready; so is one whose disk refuses writes, because a restart would not repair it.

    starting -> serving -> stopping
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final


class LifePhase(StrEnum):
    """The phase of a node's life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


_NEXT: Final[dict[LifePhase, frozenset[LifePhase]]] = {
    LifePhase.STARTING: frozenset({LifePhase.SERVING, LifePhase.STOPPING}),
    LifePhase.SERVING: frozenset({LifePhase.STOPPING}),
    LifePhase.STOPPING: frozenset(),
}
assert _NEXT.keys() == set(LifePhase)

WARNINGS_MAX: Final = 100  # in one response

_WAIT: Final = {
    LifePhase.STARTING: "the node is starting: it recovers its logs and does not listen yet",
    LifePhase.STOPPING: "the node is stopping: it takes no new requests",
}


class Health:
    """What the health endpoints report.  Problems make a node unready, warnings do not."""

    def __init__(self) -> None:
        self.phase = LifePhase.STARTING
        self._problems: dict[str, str] = {}
        self._checks: dict[str, Callable[[], str | None]] = {}
        self._warnings: dict[str, str] = {}
        self._watched: list[Callable[[], dict[str, str]]] = []

    def enter(self, phase: LifePhase) -> None:
        """Enter `phase`; phases do not go backwards."""
        assert phase is self.phase or phase in _NEXT[self.phase], (self.phase, phase)
        self.phase = phase

    def fail(self, what: str, why: str) -> None:
        """Note that something has failed without which the node cannot serve, as `disk`."""
        self._problems[what] = why

    def mend(self, what: str) -> None:
        """Note that `what` works again: it is neither a problem nor a warning."""
        self._problems.pop(what, None)
        self._warnings.pop(what, None)

    def has_failed(self, what: str) -> bool:
        """Whether `fail` was called for it, and not `mend` since."""
        return what in self._problems

    def check(self, what: str, trouble: Callable[[], str | None]) -> None:
        """Call `trouble` for each health request; if it returns a reason, the node is unready."""
        self._checks[what] = trouble

    def warn(self, what: str, why: str) -> None:
        """Note a problem that does not make the node unready, as a corrupt log."""
        self._warnings[what] = why

    def watch(self, warnings: Callable[[], dict[str, str]]) -> None:
        """Call `warnings` for each health request; it returns the current problems."""
        self._watched.append(warnings)

    @property
    def ready(self) -> bool:
        """True if a request would be carried out now."""
        return self.phase is LifePhase.SERVING and not self._troubles()

    @property
    def status(self) -> str:
        """One word: starting, ready, waiting, failed or stopping."""
        if self.phase is not LifePhase.SERVING:
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
        """The current problems that make the node unready."""
        found = dict(self._problems)
        if self.phase is LifePhase.SERVING:
            for what, trouble in self._checks.items():
                if (why := trouble()) is not None:
                    found[what] = why
        return found

    @property
    def warnings(self) -> list[str]:
        """The first WARNINGS_MAX problems that do not make the node unready."""
        found = dict(self._warnings)
        if self.phase is not LifePhase.STARTING:
            for watched in self._watched:
                found.update(watched())
        lines = [f"{what}: {why}" for what, why in sorted(found.items())]
        left_out = len(lines) - WARNINGS_MAX
        return lines if left_out <= 0 else [*lines[:WARNINGS_MAX], f"and {left_out} more"]
