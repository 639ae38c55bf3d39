"""What a writer has done so far: plain numbers that metrics read."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Durations:
    """How often something was done, and how long it took."""

    count: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.count += 1
        self.seconds += seconds
        self.seconds_max = max(self.seconds_max, seconds)


@dataclass(slots=True)
class WriterStats:
    """Counters of one writer; those that end in `_now` are gauges."""

    batches: int = 0  # accepted
    batch_bytes: int = 0
    puts: int = 0  # attempts to store an object
    put_bytes: int = 0  # of objects that were stored
    put_retries: int = 0
    commits: int = 0  # objects that were committed
    commit_retries: int = 0
    receipt_objects: int = 0
    failed_objects: int = 0  # whose batches were answered with an error
    failed_batches: int = 0
    refused_batches: int = 0  # by the control plane, each for its own reason
    duplicate_batches: int = 0
    followers_refused: int = 0  # because a batch before them failed (diskless.W4)
    overflows: int = 0  # batches refused because too much was buffered
    buffered_now: int = 0  # bytes buffered or under way
    uploads_now: int = 0
    uploads: Durations = field(default_factory=Durations)  # of stored objects, with retries
    commit_waits: Durations = field(default_factory=Durations)  # of commits, with retries
    flushes: Durations = field(default_factory=Durations)  # from first batch to answers
