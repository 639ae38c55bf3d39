"""The limits of connections, and the counters for metrics."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

UNLIMITED: Final = (1 << 31) - 1  # Kafka's value for "no limit"

# Why a connection was closed: values of a label of the metric.
PEER_CLOSED: Final = "peer_closed"
HUNG_UP: Final = "hung_up"  # the peer closed it while a request of its own waited
MALFORMED: Final = "malformed"
BAD_REQUEST: Final = "bad_request"
IDLE: Final = "idle"
TOO_SLOW: Final = "too_slow"  # a request arrives, or a response is read, too slowly
NO_MEMORY: Final = "no_memory"  # queued.max.request.bytes is used up (runtime.N3)
BY_NODE: Final = "node"  # the node stops, or closed it for a reason of its own

# Why one was refused: the names of the settings.
MAX_CONNECTIONS: Final = "max.connections"
MAX_PER_IP: Final = "max.connections.per.ip"
MAX_RATE: Final = "max.connection.creation.rate"
MAX_RATE_PER_IP: Final = "max.connection.creation.rate.per.ip"
OUT_OF_DESCRIPTORS: Final = "ulimit -n"  # no setting: the limit of open files of the process


@dataclass(slots=True, kw_only=True)
class NetLimits:
    """Limits on the connections of a server; they may change while it runs."""

    frame_size_max: int = 100 * 1024 * 1024
    partial_size_max: int = 256 * 1024 * 1024
    connections_max: int = 20_000
    idle_seconds_max: float = 600.0
    # Connections per address, and new connections per second, in total and per address.
    per_address_max: int = UNLIMITED
    per_address_overrides: dict[str, int] = field(default_factory=dict)  # by `address_key`
    rate_max: int = UNLIMITED
    rate_per_address_max: int = UNLIMITED


@dataclass(slots=True)
class NetStats:
    """Counters of a server, which metrics read."""

    connections: int = 0
    accepted: int = 0
    delayed: int = 0  # accepted, but served later because a creation rate was exceeded
    malformed: int = 0  # closed because of an invalid frame length
    timed_out: int = 0  # closed for being idle, stalled or too slow
    evicted: int = 0  # closed to make room (runtime.N3)
    received_size: int = 0
    sent_size: int = 0
    partial_size: int = 0  # memory held for frames that have arrived in part
    refused: Counter[str] = field(default_factory=Counter)  # by the setting that forbids it
    closed: Counter[str] = field(default_factory=Counter)  # by reason
