"""What a reader has done so far: plain numbers that metrics read."""

from dataclasses import dataclass


@dataclass(slots=True)
class ReaderStats:
    """Counters of one reader; those that end in `_now` are gauges."""

    reads: int = 0  # that returned batches
    read_bytes: int = 0
    hits: int = 0  # reads that the cache answered
    pending: int = 0  # reads that had to wait
    refused: int = 0  # because too many others waited
    errors: int = 0  # of reads that waited
    finds: int = 0  # questions to the control plane where batches are
    bounds_asked: int = 0  # questions to the control plane for bounds
    gets: int = 0  # ranges that were read from the store
    get_bytes: int = 0
    get_retries: int = 0
    read_ahead: int = 0  # blocks
    corrupt: int = 0  # blocks with wrong bytes
    missing: int = 0  # objects that were not where they were said to be
    evictions: int = 0
    cached_now: int = 0  # bytes
    hot_now: int = 0  # gets under way or waiting
    cold_now: int = 0
