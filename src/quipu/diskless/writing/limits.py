"""`WriterLimits`: how long and how much a writer buffers, and when it gives up."""

from typing import Final, NamedTuple

EARLY_BYTES: Final = 64 << 10  # a buffer with less waits for its interval
QUIET_SECONDS_MIN: Final = 0.002  # without a new batch, before a buffer is written early


class WriterLimits(NamedTuple):
    """Sizes in bytes, times in milliseconds."""

    flush_interval_ms: int = 250  # after the first batch of an object
    flush_bytes: int = 4 << 20
    flush_batches: int = 1000  # of one object: so many are encoded and answered in one go
    uploads_max: int = 8  # at the same time
    buffer_bytes: int = 64 << 20  # buffered or under way; above it, the writer is full
    overflow_bytes: int = 64 << 20  # accepted in addition, of requests that had arrived already
    attempt_ms_max: int = 20_000  # of one put, or one commit
    upload_ms_max: int = 60_000  # of all attempts to store an object
    commit_ms_max: int = 60_000  # of all attempts to commit it
    receipts_ms: int = 1000  # without new batches, until receipts are stored on their own
