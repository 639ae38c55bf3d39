"""What connections may cost, and what they are counted by."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

UNLIMITED: Final = (1 << 31) - 1  # as Kafka writes it

# Why a connection was closed, as the metric names it.
PEER_CLOSED: Final = "peer_closed"
HUNG_UP: Final = "hung_up"  # while a request of its own waited
MALFORMED: Final = "malformed"
BAD_REQUEST: Final = "bad_request"
IDLE: Final = "idle"
TOO_SLOW: Final = "too_slow"  # a request that trickles in, or an answer that is not taken
NO_MEMORY: Final = "no_memory"  # queued.max.request.bytes is used up (N3)
BY_NODE: Final = "node"  # the node stops, or has its own reasons

# Why one was refused: the settings' own names.
MAX_CONNECTIONS: Final = "max.connections"
MAX_PER_IP: Final = "max.connections.per.ip"
MAX_RATE: Final = "max.connection.creation.rate"
MAX_RATE_PER_IP: Final = "max.connection.creation.rate.per.ip"
OUT_OF_DESCRIPTORS: Final = "ulimit -n"  # no setting: what the process may open


@dataclass(slots=True, kw_only=True)
class NetLimits:
    """Bounds on what peers may cost."""

    frame_size_max: int = 100 * 1024 * 1024
    partial_size_max: int = 256 * 1024 * 1024
    connections_max: int = 20_000
    idle_seconds_max: float = 600.0
    # Of one address: how many, and how many new ones a second.
    per_address_max: int = UNLIMITED
    per_address_overrides: dict[str, int] = field(default_factory=dict)
    rate_max: int = UNLIMITED
    rate_per_address_max: int = UNLIMITED


@dataclass(slots=True)
class NetStats:
    """Plain counters, read by whoever shows metrics."""

    connections: int = 0
    accepted: int = 0
    delayed: int = 0  # accepted, and served only later: over a creation rate
    malformed: int = 0  # closed for a length that cannot be
    timed_out: int = 0  # closed for being idle, stalled or too slow
    evicted: int = 0  # closed to make room (N3)
    received_size: int = 0
    sent_size: int = 0
    partial_size: int = 0  # memory held for frames that have arrived in part
    refused: Counter[str] = field(default_factory=Counter)  # by the setting that forbids it
    closed: Counter[str] = field(default_factory=Counter)  # by why
