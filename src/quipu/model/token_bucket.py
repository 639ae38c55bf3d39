"""A bucket of tokens, one for each byte: limits bytes per second.

It fills with `bytes_per_second` up to `burst`.  A part takes its tokens at once, also more than
there are; who took too many waits until the bucket would be full enough.  So parts pass in the
order in which they asked, and a part may be larger than the bucket.  Pure: the caller says what
time it is, and waits.

Used for copies to and reads from a remote tier, and for replicas that catch up.

Invariant
    model.T1  in any `t` seconds, parts of at most burst + t * bytes_per_second bytes begin, and one
              more part
"""

from math import inf
from typing import Final

NO_LIMIT: Final = 2**63 - 1  # bytes per second


class TokenBucket:
    """The bucket; one for all parts that share a limit."""

    __slots__ = ("_burst", "_bytes_per_second", "_filled_at", "_tokens")

    def __init__(self, bytes_per_second: int, burst: int) -> None:
        assert bytes_per_second >= 0, bytes_per_second
        assert burst > 0, burst
        self._bytes_per_second = bytes_per_second
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._bytes_per_second < NO_LIMIT

    def invariants(self) -> None:
        """Assert that the bucket is at most full."""
        assert self._tokens <= self._burst, (self._tokens, self._burst)  # model.T1

    def change(self, bytes_per_second: int, burst: int, now: float) -> None:
        """Fill at another rate, up to another size, from the time `now` on."""
        assert bytes_per_second >= 0, bytes_per_second
        assert burst > 0, burst
        if (bytes_per_second, burst) != (self._bytes_per_second, self._burst):
            self._fill(now)
            self._bytes_per_second, self._burst = bytes_per_second, burst
            self._tokens = min(self._tokens, float(burst))

    def wait(self, now: float) -> float:
        """Seconds from `now` until a part may begin; infinite at a rate of 0."""
        self._fill(now)
        if self._tokens >= 0:
            return 0.0 if self._bytes_per_second else inf
        return -self._tokens / self._bytes_per_second if self._bytes_per_second else inf

    def take(self, size: int, now: float) -> float:
        """Take `size` tokens at the time `now`; return for how many seconds to wait first."""
        assert size >= 0, size
        wait = self.wait(now)
        self._tokens -= size
        self.invariants()
        return wait

    def _fill(self, now: float) -> None:
        passed = max(0.0, now - self._filled_at)
        self._filled_at = max(now, self._filled_at)
        self._tokens = min(self._tokens + passed * self._bytes_per_second, float(self._burst))
