"""How long to wait for a process: as long as it makes progress, up to a large bound.

A node starts in half a second on an idle machine, and in a minute if fifty processes share a core;
no fixed timeout fits both.  So a process is waited for while it uses CPU or writes to its log; one
that does neither for `quiet_seconds_max` is taken to hang.

Invariants
    launch.W1  a wait ends: with a result, after `quiet_seconds_max` without progress, or after
               `seconds_max`
    launch.W2  a process that uses CPU or writes to its log is waited for until `seconds_max`
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from quipu.launch.usage import usage_of

QUIET_SECONDS_MAX: Final = 30.0
CPU_SECONDS_MIN: Final = 0.01  # less CPU time than this is no progress


class WaitLimits(NamedTuple):
    """How long a wait may take in all, and how much of it without progress."""

    seconds_max: float
    quiet_seconds_max: float = QUIET_SECONDS_MAX


class ProgressWatch:
    """Says whether a process that is waited for still makes progress."""

    def __init__(
        self, pid: int, log_path: Path, limits: WaitLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._log_path = log_path
        self._limits = limits
        self._clock = clock
        self._begun = self._progressed = clock()
        self._cpu_seconds, self._log_size = self._look()

    @property
    def seconds(self) -> float:
        """How long the wait has taken so far."""
        return self._clock() - self._begun

    def is_over(self) -> bool:
        """Has the process hung, or the time run out?  Call often: a call records progress."""
        now = self._clock()
        cpu_seconds, log_size = self._look()
        if cpu_seconds - self._cpu_seconds >= CPU_SECONDS_MIN or log_size != self._log_size:
            self._progressed = now  # launch.W2
            self._cpu_seconds, self._log_size = cpu_seconds, log_size
        is_quiet = now - self._progressed > self._limits.quiet_seconds_max
        return is_quiet or now - self._begun > self._limits.seconds_max  # launch.W1

    def _look(self) -> tuple[float, int]:
        cpu_seconds, log_size = 0.0, 0
        with contextlib.suppress(OSError):  # the process has just ended
            cpu_seconds = usage_of(self._pid).cpu_seconds
        with contextlib.suppress(OSError):
            log_size = self._log_path.stat().st_size
        return cpu_seconds, log_size
