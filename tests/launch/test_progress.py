"""How long a process is waited for: progress prolongs a wait, silence and a bound end it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quipu.launch.progress import ProgressWatch, WaitLimits
from quipu.launch.usage import usage_of


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running(code: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def test_silence_ends_a_wait(log: Path) -> None:
    """launch.W1: a process that does nothing hangs."""
    clock = FakeClock()
    with running("import time; time.sleep(60)") as pid:
        time.sleep(0.5)  # until Python itself has started
        watch = ProgressWatch(pid, log, WaitLimits(100.0, 10.0), clock)
        while watch.is_over():
            time.sleep(0.1)
        clock.now = watch.seconds + 10.5
        assert watch.is_over()


def test_a_log_that_grows_is_progress(log: Path) -> None:
    """launch.W2: up to the bound; launch.W1: and no further."""
    clock = FakeClock()
    with running("import time; time.sleep(60)") as pid:
        watch = ProgressWatch(pid, log, WaitLimits(100.0, 10.0), clock)
        for _ in range(12):
            clock.now += 8.0
            with log.open("a") as file:
                file.write("at work\n")
            assert not watch.is_over()
        clock.now += 8.0
        assert watch.is_over()
        assert watch.seconds == 104.0


def test_cpu_time_is_progress(log: Path) -> None:
    """launch.W2: a machine where nobody else is busy is not assumed."""
    clock = FakeClock()
    with running("while True: pass") as pid:
        watch = ProgressWatch(pid, log, WaitLimits(100.0, 10.0), clock)
        for _ in range(5):
            used = usage_of(pid).cpu_seconds
            while usage_of(pid).cpu_seconds < used + 0.05:
                time.sleep(0.01)
            clock.now += 9.0
            assert not watch.is_over()


def test_what_a_process_has_used() -> None:
    usage = usage_of(os.getpid())
    assert usage.cpu_seconds > 0
    assert usage.resident_bytes > 1 << 20
    with pytest.raises(OSError, match="No such file"):
        usage_of(1 << 30)
