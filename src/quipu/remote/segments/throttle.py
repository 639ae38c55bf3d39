"""Limits the bytes per second of copies: Kafka's remote.log.manager.copy.max.bytes.per.second.

A bucket of tokens, one for each byte: it fills with `bytes_per_second` up to `burst`.  A part takes
its tokens at once, also more than there are; who took too many waits until the bucket would be
full enough.  So parts pass in the order in which they asked, and a part may be larger than the
bucket.  Pure: the caller says what time it is, and waits.

Invariant
    remote.segments.T1  in any `t` seconds, parts of at most burst + t * bytes_per_second bytes
                        begin, and one more part
"""


class Throttle:
    """The bucket; one for all copies that share a limit."""

    __slots__ = ("_burst", "_bytes_per_second", "_filled_at", "_tokens")

    def __init__(self, bytes_per_second: int, burst: int) -> None:
        assert bytes_per_second > 0, bytes_per_second
        assert burst > 0, burst
        self._bytes_per_second = bytes_per_second
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = 0.0

    def invariants(self) -> None:
        """Assert that the bucket is at most full."""
        assert self._tokens <= self._burst, (self._tokens, self._burst)  # remote.segments.T1

    def take(self, size: int, now: float) -> float:
        """Take `size` tokens at the time `now`; return for how many seconds to wait first."""
        assert size >= 0, size
        passed = max(0.0, now - self._filled_at)
        self._filled_at = max(now, self._filled_at)
        self._tokens = min(self._tokens + passed * self._bytes_per_second, float(self._burst))
        wait = max(0.0, -self._tokens / self._bytes_per_second)
        self._tokens -= size
        self.invariants()
        return wait
