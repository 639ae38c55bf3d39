"""Counters and gauges: plain numbers that the hot path increments.

Counting must be nearly free, so these are integers in slots, without locks, labels and names; all
of it happens on the node's event loop.  metrics.py adds names and labels for a scrape.

A counter only grows.  A gauge is a current value; the code that raises it lowers it again.

Not here: what connections count by themselves (NetStats in runtime/net/limits.py).
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
    """Counts durations in buckets; about a quarter of a microsecond per observation."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)  # the last: longer than every bound
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration; a bound belongs to the bucket that it ends."""
        self.buckets[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.buckets)


@dataclass(slots=True)
class RemoteStats:
    """Counters of the remote tier."""

    copy_requests: int = 0
    copy_bytes: int = 0
    copy_errors: int = 0
    fetch_requests: int = 0
    fetch_bytes: int = 0
    fetch_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    orphans_deleted: int = 0  # objects that no metadata refers to
    task_errors: int = 0  # steps of a partition that failed, for whatever reason


@dataclass(slots=True)
class Stats:
    """All counters and gauges of one node."""

    # requests; `requests` is by API key, and a fetch's time includes its wait for records
    requests: dict[int, Histogram] = field(default_factory=dict)
    request_errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # API key, code
    malformed_requests: int = 0  # cannot be decoded, or of an API or version that is not served
    requests_refused: int = 0  # for their size or elements, or because too many bytes wait
    responses_refused: int = 0  # for their size, or because others use all of the memory
    responses_dropped: int = 0  # connections closed to free the memory of their responses
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
    batches_recompressed: int = 0  # because of compression.type
    checking_bytes: int = 0  # gauge: copies of requests that wait for that
    duplicate_batches: int = 0  # a producer's retries, recognised and not written again
    fetched_bytes: int = 0

    # tiered storage
    remote: RemoteStats = field(default_factory=RemoteStats)

    # disk
    flushes: Histogram = field(default_factory=Histogram)
    segments_removed: int = 0  # by retention and delete-records
    disk_refusals: int = 0  # writes that the disk refused: no room, no descriptors, broken
    scrubbed_bytes: int = 0
    damaged_batches: int = 0  # ranges that were found to differ from what was written
    damaged_now: int = 0  # gauge: of them, those that are not repaired
    repaired_batches: int = 0  # replaced by those of another replica
    cleaner_passes: int = 0
    cleaner_failures: int = 0
    cleaner_read_bytes: int = 0
    cleaner_written_bytes: int = 0
    cleaner_recopy_percent: int = 0  # gauge: of the last pass
    max_clean_seconds: float = 0.0  # gauge: of the longest pass
    uncleanable_partitions: int = 0  # gauge: whose last pass failed
    cleaner_last_looked_ms: int = 0  # gauge: when logs to compact were last searched for

    # the last start
    recovery_seconds: float = 0.0
    recovery_clean: int = 0  # 1 if the node had stopped in order, so that nothing was scanned

    def observe_request(self, api_key: int, seconds: float) -> None:
        """Count one request of a known API that got its response."""
        histogram = self.requests.get(api_key)
        if histogram is None:  # bounded: unknown keys are refused before they are counted
            histogram = self.requests[api_key] = Histogram()
        histogram.observe(seconds)
