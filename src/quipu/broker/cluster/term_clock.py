"""The clock of a controller's term: the time at its begin, and what has passed since.

Times that are compared with each other within a term come from this clock, so setting the
machine's clock neither moves a deadline nor makes one pass (broker.cluster.R3).
"""

from quipu.model.ids import TimestampMs
from quipu.runtime.clock import Clock


class TermClock:
    """A clock that is read once in a term, and then goes on by the monotonic one; a `Clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.started_at = clock.monotonic()  # when this node started
        self.begin()

    def begin(self) -> None:
        """Begin a term: take the time that the machine's clock has now."""
        self._began = self._clock.monotonic()
        self._began_ms = self._clock.now_ms()

    def now_ms(self) -> TimestampMs:
        passed_ms = int((self._clock.monotonic() - self._began) * 1000)
        return TimestampMs(self._began_ms + passed_ms)
