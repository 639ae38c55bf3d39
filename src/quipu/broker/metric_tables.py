"""The metrics that are counters and gauges of the node as a whole, by where they are counted.

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
        "What clients were refused, by the setting that forbids it.", "limit"),
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
        "quipu_group_offsets_bytes", "gauge", "Memory of them, as the limits count it."),
}

NET: Final[dict[str, Family]] = {  # by attribute of NetStats
    "connections": Family("quipu_connections", "gauge", "Open client connections."),
    "accepted": Family(
        "quipu_connections_accepted_total", "counter", "Client connections accepted."
    ),
    "delayed": Family(
        "quipu_connections_delayed_total",
        "counter",
        "Connections served later, for they came faster than `max.connection.creation.rate`.",
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
    "answers_refused": Family(
        "quipu_answers_refused_total",
        "counter",
        "Answers refused for `max.response.bytes` or `queued.max.response.bytes`.",
    ),
    "answers_dropped": Family(
        "quipu_answers_dropped_total",
        "counter",
        "Connections closed because they did not take a large answer while memory was short.",
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
        "Compressed batches so large that their records were looked at off the loop.",
    ),
    "checking_bytes": Family(
        "quipu_checking_bytes",
        "gauge",
        "Requests that wait for that; at most `queued.max.request.bytes`.",
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
        "Batches, or runs of them, found to be other than what was written.",
    ),
    "damaged_now": Family(
        "quipu_damaged_batches", "gauge", "Of these, those that are not repaired."
    ),
    "repaired_batches": Family(
        "quipu_repaired_batches_total", "counter", "Batches replaced by another replica's."
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
        "Connections of nodes that know peer.secret, are no members, and were too many."),
    "messages_refused": Family(
        "quipu_peer_messages_refused_total", "counter",
        "Messages of nodes that may not say so, or with numbers that cannot be."),
}
