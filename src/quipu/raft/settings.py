"""Timeouts and sizes of a quorum; all its nodes should have the same."""

from dataclasses import dataclass
from typing import Final

ENTRY_SIZE_MAX: Final = 4 << 20  # bytes of one entry's commands
COMMANDS_MAX: Final = 1 << 20  # in one entry
APPEND_SIZE_MAX: Final = 1 << 20  # bytes of entries in one message, unless one entry has more
ENTRIES_MAX: Final = 4096  # in one message
WINDOW_MAX: Final = 32  # messages with entries in flight to one follower
CHUNK_SIZE_MAX: Final = 512 << 10  # bytes of a snapshot in one message
SNAPSHOT_SIZE_MAX: Final = 1 << 30  # bytes of a snapshot that a follower accepts
UNCOMMITTED_SIZE_MAX: Final = 64 << 20  # bytes of uncommitted entries above which a leader refuses
READS_MAX: Final = 10_000  # pending at a time
VOTERS_MAX: Final = 31
OBSERVERS_MAX: Final = 1000  # nodes that a leader sends to, voters included
OBSERVER_PATIENCE: Final = 10  # election timeouts of silence after which one is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long nodes wait for each other."""

    election_timeout_ms: int = 1000
    heartbeat_interval_ms: int = 200

    def __post_init__(self) -> None:
        assert self.election_timeout_ms > 0
        assert self.heartbeat_interval_ms > 0
