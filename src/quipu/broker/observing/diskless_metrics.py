"""The metrics of diskless topics: what the node's writer, reader and cleaner have done.

Not here: the text format (metrics.py), who counts (quipu.diskless).
"""

from typing import Final, NamedTuple

from quipu.broker.observing.metric_tables import Family


class DisklessTotals(NamedTuple):
    """Numbers of the diskless topics of one node; all zeros if it has none."""

    buffered_bytes: int = 0
    uploads: int = 0
    batches: int = 0
    batch_bytes: int = 0
    puts: int = 0
    put_bytes: int = 0
    put_retries: int = 0
    put_seconds: float = 0.0
    receipt_objects: int = 0
    commits: int = 0
    commit_retries: int = 0
    commit_seconds: float = 0.0
    flushes: int = 0
    flush_seconds: float = 0.0
    failed_batches: int = 0
    refused_batches: int = 0
    duplicate_batches: int = 0
    reads: int = 0
    read_bytes: int = 0
    read_errors: int = 0
    cache_hits: int = 0
    cache_bytes: int = 0
    cache_evictions: int = 0
    gets: int = 0
    get_bytes: int = 0
    get_retries: int = 0
    finds: int = 0
    corrupt: int = 0
    missing: int = 0
    reachable: int = 0
    objects_deleted: int = 0
    orphans_deleted: int = 0
    objects_rewritten: int = 0
    rewritten_bytes: int = 0
    cleaning_failures: int = 0
    foreign_objects: int = 0


DISKLESS: Final[dict[str, Family]] = {  # by attribute of DisklessTotals
    "buffered_bytes": Family(
        "quipu_diskless_buffered_bytes", "gauge",
        "Bytes of batches of diskless topics that are collected or being written; while they are "
        "more than `diskless.buffer.bytes`, Produce requests wait."),
    "uploads": Family(
        "quipu_diskless_uploads", "gauge", "Objects of diskless topics that are being written."),
    "batches": Family(
        "quipu_diskless_batches_total", "counter", "Batches that were given to diskless topics."),
    "batch_bytes": Family(
        "quipu_diskless_batch_bytes_total", "counter",
        "Bytes of batches that were given to diskless topics."),
    "puts": Family(
        "quipu_diskless_puts_total", "counter", "Attempts to write an object, each of them paid."),
    "put_bytes": Family(
        "quipu_diskless_put_bytes_total", "counter", "Bytes of objects that were written."),
    "put_retries": Family(
        "quipu_diskless_put_retries_total", "counter", "Repeated attempts to write an object."),
    "put_seconds": Family(
        "quipu_diskless_put_seconds_total", "counter",
        "Seconds in which objects were written, retries included."),
    "receipt_objects": Family(
        "quipu_diskless_receipt_objects_total", "counter",
        "Objects with receipts alone, which a node writes once it has been silent for a second."),
    "commits": Family(
        "quipu_diskless_commits_total", "counter", "Objects that the control plane has ordered."),
    "commit_retries": Family(
        "quipu_diskless_commit_retries_total", "counter", "Repeated attempts to commit an object."),
    "commit_seconds": Family(
        "quipu_diskless_commit_seconds_total", "counter",
        "Seconds in which objects were committed, retries included."),
    "flushes": Family(
        "quipu_diskless_flushes_total", "counter",
        "Objects whose batches were answered, with success or not."),
    "flush_seconds": Family(
        "quipu_diskless_flush_seconds_total", "counter",
        "Seconds from the first batch of an object to its response."),
    "failed_batches": Family(
        "quipu_diskless_failed_batches_total", "counter",
        "Batches whose object could not be written or committed; their producers retry."),
    "refused_batches": Family(
        "quipu_diskless_refused_batches_total", "counter",
        "Batches that the control plane refused, for example because of their sequence numbers."),
    "duplicate_batches": Family(
        "quipu_diskless_duplicate_batches_total", "counter",
        "Batches that the control plane knew already: retries of producers."),
    "reads": Family(
        "quipu_diskless_reads_total", "counter", "Reads of diskless topics that returned batches."),
    "read_bytes": Family(
        "quipu_diskless_read_bytes_total", "counter", "Bytes that they returned."),
    "read_errors": Family(
        "quipu_diskless_read_errors_total", "counter", "Reads of diskless topics that failed."),
    "cache_hits": Family(
        "quipu_diskless_cache_hits_total", "counter", "Reads that the cache answered."),
    "cache_bytes": Family(
        "quipu_diskless_cache_bytes", "gauge",
        "Memory of ranges of objects that are cached; at most `diskless.cache.bytes`."),
    "cache_evictions": Family(
        "quipu_diskless_cache_evictions_total", "counter", "Ranges dropped from the cache."),
    "gets": Family(
        "quipu_diskless_gets_total", "counter", "Reads of the object store, each of them paid."),
    "get_bytes": Family(
        "quipu_diskless_get_bytes_total", "counter", "Bytes read from the object store."),
    "get_retries": Family(
        "quipu_diskless_get_retries_total", "counter", "Repeated reads of the object store."),
    "finds": Family(
        "quipu_diskless_finds_total", "counter",
        "Questions to the control plane in which objects records are."),
    "corrupt": Family(
        "quipu_diskless_corrupt_ranges_total", "counter",
        "Ranges of objects whose bytes are not those that were written."),
    "missing": Family(
        "quipu_diskless_missing_objects_total", "counter",
        "Objects that were not where the control plane had said."),
    "reachable": Family(
        "quipu_diskless_control_plane_reachable", "gauge",
        "1 if the control plane responded the last time, 0 if not or if there are no diskless "
        "topics."),
    "objects_deleted": Family(
        "quipu_diskless_objects_deleted_total", "counter",
        "Objects in which nothing was left, deleted by this node."),
    "orphans_deleted": Family(
        "quipu_diskless_orphans_deleted_total", "counter",
        "Objects that were stored and never committed, deleted by this node."),
    "objects_rewritten": Family(
        "quipu_diskless_objects_rewritten_total", "counter",
        "Small or mostly dead objects whose records this node has copied to new ones."),
    "rewritten_bytes": Family(
        "quipu_diskless_rewritten_bytes_total", "counter", "Bytes that were copied for that."),
    "cleaning_failures": Family(
        "quipu_diskless_cleaning_failures_total", "counter",
        "Passes of the clean-up that ended with an error, and were repeated."),
    "foreign_objects": Family(
        "quipu_diskless_foreign_objects_total", "counter",
        "Objects with names of others that were found in the store, and left alone."),
}


class ZoneSample(NamedTuple):
    """How often clients with a zone were shown a replica of a diskless topic in that zone."""

    topic: str
    ratio: float


ZONE_HITS: Final = Family(
    "kafka_broker_diskless_preferred_broker_hit_ratio", "gauge",
    "Of the partitions of a diskless topic in Metadata responses to clients with a zone, the part "
    "that was shown with a broker in that zone, since the start; a topic that no such client has "
    "asked for has no line.", "topic")
