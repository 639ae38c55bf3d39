"""Metrics of limits: what was refused or closed because of which, and how full they are.

Not here: the text format and all other metrics (metrics.py).
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
