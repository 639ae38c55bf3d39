"""Waiting in tests for as long as there is progress, however slow a busy machine makes it.

    wait_for(lambda: len(found) >= 3, progress=lambda: len(found))

A limit in seconds that a quiet machine keeps is no limit for a busy one.  So what is limited is the
time without progress: `progress` gave the same value, and the processes that do the work (this one
and all that it has started, unless others are named) were given next to no CPU time.  Whatever
loops without result has `FINAL_SECONDS` in all.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable

import psutil

STALL_SECONDS = 120.0  # without progress
FINAL_SECONDS = 600.0  # with or without
CPU_SECONDS = 1.0  # so much is progress
LOOK_SECONDS = 1.0  # between two looks at processes


def slowdown() -> float:
    """How many times longer than on a quiet machine something takes now; at least 1."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def family(pid: int | None = None) -> list[psutil.Process]:
    """A process, this one unless another is named, and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid or os.getpid())
        return [first, *first.children(recursive=True)]
    return []


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """The CPU time that some processes have had, as far as they are there."""
    found = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            found += times.user + times.system
    return found


class Patience:
    """Says when to give up: `check` raises AssertionError once there was no progress for long."""

    def __init__(
        self, what: Callable[[], object] = str, *,
        processes: Callable[[], Iterable[psutil.Process]] = family,
    ) -> None:
        self._what = what  # shown with a failure
        self._processes = processes
        self._begun = self._moved = self._looked = time.monotonic()
        self._value: object = None
        self._cpu = cpu_seconds(processes())

    def check(self, value: object = None) -> None:
        """Compare a value, and now and then the CPU time, with those of the last call."""
        now = time.monotonic()
        if value != self._value:
            self._value, self._moved = value, now
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            cpu = cpu_seconds(self._processes())
            if abs(cpu - self._cpu) >= CPU_SECONDS:  # less: a process has ended
                self._cpu, self._moved = cpu, now
        assert now - self._moved < STALL_SECONDS, f"no progress: {self._what()}"
        assert now - self._begun < FINAL_SECONDS, f"not in {FINAL_SECONDS} s: {self._what()}"


def wait_for(
    reached: Callable[[], bool], *, progress: Callable[[], object] = str,
    what: Callable[[], object] | None = None, pause: float = 0.02,
    processes: Callable[[], Iterable[psutil.Process]] = family,
) -> None:
    """Wait until something is reached; AssertionError, with `what`, if there is no progress."""
    patience = Patience(what or progress, processes=processes)
    while not reached():
        patience.check(progress())
        time.sleep(pause)
