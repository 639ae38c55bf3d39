"""The counters and gauges of the whole node, by the object that counts them.

Not here: the text format, and metrics of partitions, chains and groups (metrics.py).
"""

from typing import Final, NamedTuple


class Family(NamedTuple):
    """A metric: its name, its type, what it means."""

    name: str
    kind: str
    about: str
    labels: str = ""  # names of labels, for the reference


NET_BY_REASON: Final[dict[str, Family]] = {  # by attribute of NetStats, each a Counter by label
    "refused": Family(
        "quipu_connections_refused_total", "counter",
        "Connections refused, by the setting that forbids them.", "limit"),
    "closed": Family("quipu_connections_closed_total", "counter", "Connections closed.", "reason"),
}

STATS_BY_REASON: Final[dict[str, Family]] = {  # by attribute of Stats, each a Counter by label
    "refusals": Family(
        "quipu_limit_refusals_total", "counter",
        "Requests of clients that were refused for a limit, by its setting.", "limit"),
}

GAUGES: Final[dict[str, Family]] = {  # by attribute of Stats
    "fetch_sessions": Family("quipu_fetch_sessions", "gauge", "Incremental fetch sessions."),
    "fetch_partitions": Family(
        "quipu_fetch_held_partitions", "gauge",
        "Partitions that fetch sessions and waiting fetches hold."),
    "group_bytes": Family(
        "quipu_groups_bytes", "gauge", "Memory of groups' members, as the limits count it."),
    "offsets": Family("quipu_group_offsets", "gauge", "Committed offsets that are kept."),
    "offset_bytes": Family(
        "quipu_group_offsets_bytes", "gauge",
        "Memory of committed offsets, as the limits count it."),
}

NET: Final[dict[str, Family]] = {  # by attribute of NetStats
    "connections": Family("quipu_connections", "gauge", "Open client connections."),
    "accepted": Family(
        "quipu_connections_accepted_total", "counter", "Client connections accepted."
    ),
    "delayed": Family(
        "quipu_connections_delayed_total",
        "counter",
        "Connections delayed because they came faster than `max.connection.creation.rate`.",
    ),
    "malformed": Family(
        "quipu_frames_malformed_total", "counter", "Connections closed for an impossible length."
    ),
    "timed_out": Family(
        "quipu_connections_timed_out_total",
        "counter",
        "Connections closed because they were idle, stalled or too slow.",
    ),
    "evicted": Family(
        "quipu_connections_evicted_total",
        "counter",
        "Connections closed to make room in the memory for requests.",
    ),
    "received_size": Family(
        "quipu_received_bytes_total", "counter", "Bytes received from clients."
    ),
    "sent_size": Family("quipu_sent_bytes_total", "counter", "Bytes sent to clients."),
    "partial_size": Family(
        "quipu_request_memory_bytes", "gauge", "Memory of requests that have arrived in part."
    ),
}

STATS: Final[dict[str, Family]] = {  # by attribute of Stats
    "malformed_requests": Family(
        "quipu_requests_malformed_total", "counter", "Requests that break the protocol."
    ),
    "requests_refused": Family(
        "quipu_requests_refused_total",
        "counter",
        "Requests refused for `max.request.bytes`, `max.request.elements` or "
        "`queued.max.request.bytes`.",
    ),
    "responses_refused": Family(
        "quipu_answers_refused_total",
        "counter",
        "Responses refused for `max.response.bytes` or `queued.max.response.bytes`.",
    ),
    "responses_dropped": Family(
        "quipu_answers_dropped_total",
        "counter",
        "Connections closed because they received a large response too slowly for its memory.",
    ),
    "fetch_waiters": Family("quipu_fetch_waiters", "gauge", "Fetches that wait for records."),
    "produced_batches": Family(
        "quipu_produced_batches_total", "counter", "Batches written for producers."
    ),
    "produced_records": Family(
        "quipu_produced_records_total", "counter", "Records written for producers."
    ),
    "produced_bytes": Family(
        "quipu_produced_bytes_total", "counter", "Bytes of batches written for producers."
    ),
    "batches_checked_in_threads": Family(
        "quipu_batches_checked_in_threads_total",
        "counter",
        "Compressed batches so large that their records were checked in a thread.",
    ),
    "batches_recompressed": Family(
        "quipu_batches_recompressed_total",
        "counter",
        "Batches that were compressed again, because `compression.type` is not their codec.",
    ),
    "checking_bytes": Family(
        "quipu_checking_bytes",
        "gauge",
        "Bytes of requests that wait for such a thread; at most `queued.max.request.bytes`.",
    ),
    "duplicate_batches": Family(
        "quipu_duplicate_batches_total",
        "counter",
        "Batches that an idempotent producer sent again; recognised, not written.",
    ),
    "fetched_bytes": Family(
        "quipu_fetched_bytes_total", "counter", "Bytes of batches sent to consumers."
    ),
    "segments_removed": Family(
        "quipu_segments_removed_total", "counter", "Segment files removed by retention."
    ),
    "disk_refusals": Family(
        "quipu_disk_refusals_total",
        "counter",
        "Writes to logs that the disk refused: it is full, or fails.",
    ),
    "scrubbed_bytes": Family(
        "quipu_scrubbed_bytes_total", "counter", "Bytes of complete segments checked by the scrub."
    ),
    "damaged_batches": Family(
        "quipu_damaged_batches_total",
        "counter",
        "Batches, or ranges of them, that were found damaged on disk.",
    ),
    "damaged_now": Family(
        "quipu_damaged_batches", "gauge", "Of these, those that are not repaired."
    ),
    "repaired_batches": Family(
        "quipu_repaired_batches_total", "counter", "Batches replaced by another replica's."
    ),
    "cleaner_passes": Family(
        "quipu_log_cleaner_passes_total", "counter", "Passes of compaction that ended well."
    ),
    "cleaner_failures": Family(
        "quipu_log_cleaner_failures_total", "counter", "Passes of compaction that failed."
    ),
    "cleaner_read_bytes": Family(
        "quipu_log_cleaner_read_bytes_total", "counter", "Bytes that compaction has read."
    ),
    "cleaner_written_bytes": Family(
        "quipu_log_cleaner_written_bytes_total", "counter", "Bytes that compaction has written."
    ),
    "cleaner_recopy_percent": Family(
        "quipu_log_cleaner_recopy_percent",
        "gauge",
        "Size after the last pass of compaction in percent of the size before it; Kafka's "
        "cleaner-recopy-percent.",
    ),
    "max_clean_seconds": Family(
        "quipu_log_cleaner_max_clean_time_seconds",
        "gauge",
        "How long the longest pass of compaction took; Kafka's max-clean-time-secs.",
    ),
    "uncleanable_partitions": Family(
        "quipu_log_cleaner_uncleanable_partitions",
        "gauge",
        "Partitions that could not be compacted; Kafka's uncleanable-partitions-count.",
    ),
    "cleaner_last_looked_ms": Family(
        "quipu_log_cleaner_last_run_timestamp_ms",
        "gauge",
        "When logs to compact were last searched for, in milliseconds since 1970; Kafka reports "
        "the time since then as time-since-last-run-ms.",
    ),
    "recovery_seconds": Family(
        "quipu_recovery_seconds", "gauge", "How long the last start took to open all logs."
    ),
    "recovery_clean": Family(
        "quipu_recovery_clean",
        "gauge",
        "1 if the last stop was clean, so that the start had nothing to check.",
    ),
}

PEERS: Final[dict[str, Family]] = {  # by attribute of PeerStats
    "unproved_lost": Family(
        "quipu_peer_unproved_connections_closed_total", "counter",
        "Connections to peer.listener that ended before they had proved to know peer.secret."),
    "unproved_evicted": Family(
        "quipu_peer_unproved_connections_evicted_total", "counter",
        "Of these, closed because of `peer.max.unauthenticated.connections`."),
    "guests_refused": Family(
        "quipu_peer_nodes_refused_total", "counter",
        "Connections refused of nodes that know peer.secret but are not members: too many."),
    "messages_refused": Family(
        "quipu_peer_messages_refused_total", "counter",
        "Messages of nodes that may not send them, or with impossible numbers."),
}

REMOTE: Final[dict[str, Family]] = {  # by attribute of RemoteStats; Kafka's names in brackets
    "copy_requests": Family(
        "quipu_remote_copy_requests_total", "counter",
        "Copies of segments to the remote tier that were begun (RemoteCopyRequestsPerSec)."),
    "copy_bytes": Family(
        "quipu_remote_copy_bytes_total", "counter",
        "Bytes of segments copied to the remote tier (RemoteCopyBytesPerSec)."),
    "copy_errors": Family(
        "quipu_remote_copy_errors_total", "counter",
        "Of these, those that failed; each is repeated (RemoteCopyErrorsPerSec)."),
    "fetch_requests": Family(
        "quipu_remote_fetch_requests_total", "counter",
        "Reads of the remote tier for consumers (RemoteFetchRequestsPerSec)."),
    "fetch_bytes": Family(
        "quipu_remote_fetch_bytes_total", "counter",
        "Bytes that these reads returned (RemoteFetchBytesPerSec)."),
    "fetch_errors": Family(
        "quipu_remote_fetch_errors_total", "counter",
        "Of these, those that failed; the consumer repeats them (RemoteFetchErrorsPerSec)."),
    "delete_requests": Family(
        "quipu_remote_delete_requests_total", "counter",
        "Deletions of remote segments that were begun (RemoteDeleteRequestsPerSec)."),
    "delete_errors": Family(
        "quipu_remote_delete_errors_total", "counter",
        "Of these, those that failed; each is repeated (RemoteDeleteErrorsPerSec)."),
    "orphans_deleted": Family(
        "quipu_remote_orphans_deleted_total", "counter",
        "Objects deleted from the remote tier because no metadata refers to them."),
    "task_errors": Family(
        "quipu_remote_task_errors_total", "counter",
        "Failed attempts to bring a partition's remote tier up to date; each is repeated."),
}

TIER: Final[dict[str, Family]] = {  # by attribute of TierTotals
    "pending_reads": Family(
        "quipu_remote_reader_task_queue_size", "gauge",
        "Reads of the remote tier that wait or run; at most `remote.log.reader.max.pending.tasks` "
        "(RemoteLogReaderTaskQueueSize)."),
    "cache_bytes": Family(
        "quipu_remote_cache_bytes", "gauge",
        "Memory of the chunks and footers of remote segments that are cached; at most "
        "`remote.log.chunk.cache.bytes`."),
    "cache_hits": Family(
        "quipu_remote_cache_hits_total", "counter",
        "Chunks and footers found in the cache, or being loaded."),
    "cache_misses": Family(
        "quipu_remote_cache_misses_total", "counter",
        "Chunks and footers that were loaded from the object store, those read ahead included."),
    "cache_prefetches": Family(
        "quipu_remote_cache_prefetches_total", "counter",
        "Of these, those that were loaded ahead of a sequential reader."),
    "cache_loaded_bytes": Family(
        "quipu_remote_cache_loaded_bytes_total", "counter",
        "Bytes of these loads, after decompression."),
    "cache_evictions": Family(
        "quipu_remote_cache_evictions_total", "counter",
        "Chunks and footers dropped from the cache to make room."),
    "cache_errors": Family(
        "quipu_remote_cache_errors_total", "counter",
        "Loads that failed: the store did not respond, or returned wrong bytes."),
}

TIERED_PARTITION: Final[dict[str, Family]] = {  # by attribute of TierSample
    "remote_bytes": Family(
        "quipu_remote_log_size_bytes", "gauge",
        "Bytes of a partition in the remote tier (RemoteLogSizeBytes).", "topic, partition"),
    "metadata_count": Family(
        "quipu_remote_log_metadata_count", "gauge",
        "Remote segments of a partition, in any state (RemoteLogMetadataCount).",
        "topic, partition"),
    "copy_lag_bytes": Family(
        "quipu_remote_copy_lag_bytes", "gauge",
        "Bytes of complete segments that are not copied yet (RemoteCopyLagBytes).",
        "topic, partition"),
    "copy_lag_segments": Family(
        "quipu_remote_copy_lag_segments", "gauge",
        "Complete segments that are not copied yet; 1,000 at most are counted "
        "(RemoteCopyLagSegments).", "topic, partition"),
    "delete_lag_bytes": Family(
        "quipu_remote_delete_lag_bytes", "gauge",
        "Bytes of remote segments that are to be deleted (RemoteDeleteLagBytes).",
        "topic, partition"),
    "delete_lag_segments": Family(
        "quipu_remote_delete_lag_segments", "gauge",
        "Remote segments that are to be deleted (RemoteDeleteLagSegments).", "topic, partition"),
}
