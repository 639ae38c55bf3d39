"""Waits by progress: what moves is waited for, what does not is given up."""

import time

import pytest

from tests.harness import progress
from tests.harness.progress import wait_for


def test_what_moves_is_waited_for_and_what_stands_still_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that changes is progress, whatever the time that it takes."""
    monkeypatch.setattr(progress, "STALL_SECONDS", 0.3)
    begun = time.monotonic()
    wait_for(lambda: time.monotonic() - begun > 1, progress=time.monotonic, processes=list)
    with pytest.raises(AssertionError, match="no progress: stuck"):
        wait_for(lambda: False, what=lambda: "stuck", processes=list)


def test_a_process_that_is_given_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time is progress, too, up to a final bound."""
    monkeypatch.setattr(progress, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(progress, "FINAL_SECONDS", 1.0)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(progress, "cpu_seconds", lambda processes: time.monotonic() * 100)
    with pytest.raises(AssertionError, match="not in"):
        wait_for(lambda: False)
