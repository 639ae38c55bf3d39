"""Time: of the wall clock, and of a monotonic clock."""

import time
from typing import Protocol

from quipu.model.ids import TimestampMs


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> TimestampMs:
        """Milliseconds since 1970 UTC; may step back when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point in time; never steps back."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    monotonic = staticmethod(time.monotonic)  # itself: no Python call for each request


class ManualClock:
    """A clock for tests that moves only by `advance_ms`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._now_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def advance_ms(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        assert ms >= 0, ms
        self._now_ms += ms
        self._monotonic += ms / 1000
