"""What a node counts about itself: plain numbers that the hot path bumps.

Counting must cost next to nothing, so these are integers in slots, with no locks, no labels and no
names; all of it happens on the node's loop.  `metrics` gives them names when someone asks.

A counter only grows.  A gauge says how things are now; whoever raises one lowers it again.

Not here: what connections count by themselves (NetStats in runtime/net_limits.py).
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

# Upper bounds in seconds, both sides of what a healthy node does: 0.1 ms for a small request out
# of memory, 10 ms for one that waits for a disk, 0.5 s for a fetch that waits for records.
LATENCY_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Histogram:
    """How often something took how long; about a quarter of a microsecond per observation."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)  # the last: longer than every bound
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one that took `seconds`; a bound belongs to the bucket that it ends."""
        self.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.buckets)


@dataclass(slots=True)
class Stats:
    """All counters and gauges of one node."""

    # requests; `requests` is by API key, and a fetch's time includes its wait for records
    requests: dict[int, Histogram] = field(default_factory=dict)
    request_errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # API key, code
    malformed_requests: int = 0  # or of an API or a version that is not advertised
    requests_refused: int = 0  # for their size or elements, or because too many bytes wait
    answers_refused: int = 0  # for their size, or because others take all of the memory
    answers_dropped: int = 0  # connections closed that did not take theirs, to make room
    fetch_waiters: int = 0  # gauge: fetches that wait for records

    # limits
    refusals: Counter[str] = field(default_factory=Counter)  # by the setting that forbids it
    fetch_sessions: int = 0  # gauge
    fetch_partitions: int = 0  # gauge: that sessions and waiting fetches hold
    group_bytes: int = 0  # gauge: as the limits count them
    offsets: int = 0  # gauge
    offset_bytes: int = 0  # gauge

    # records
    produced_batches: int = 0
    produced_records: int = 0
    produced_bytes: int = 0
    batches_checked_in_threads: int = 0  # large compressed ones
    checking_bytes: int = 0  # gauge: copies of requests that wait for that
    duplicate_batches: int = 0  # a producer's retries, recognised and not written again
    fetched_bytes: int = 0

    # disk
    flushes: Histogram = field(default_factory=Histogram)
    segments_removed: int = 0  # by retention and delete-records
    disk_refusals: int = 0  # writes that the disk refused: no room, no descriptors, broken
    scrubbed_bytes: int = 0
    damaged_batches: int = 0  # stretches that were found to be other than what was written
    damaged_now: int = 0  # gauge: of them, those that are not repaired
    repaired_batches: int = 0  # replaced by those of another replica

    # the last start
    recovery_seconds: float = 0.0
    recovery_clean: int = 0  # 1 if the node had stopped in order, so that nothing was scanned

    def observe_request(self, api_key: int, seconds: float) -> None:
        """Count one answered request of a known API."""
        histogram = self.requests.get(api_key)
        if histogram is None:  # bounded: unknown keys are refused before they are counted
            histogram = self.requests[api_key] = Histogram()
        histogram.observe(seconds)
