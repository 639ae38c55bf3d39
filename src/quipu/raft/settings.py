"""Patience and sizes of a quorum; all nodes of one should have the same."""

from dataclasses import dataclass
from typing import Final

ENTRY_SIZE_MAX: Final = 4 << 20  # bytes of one entry's commands
COMMANDS_MAX: Final = 1 << 20  # in one entry
APPEND_SIZE_MAX: Final = 1 << 20  # bytes of entries in one message, unless one entry has more
ENTRIES_MAX: Final = 4096  # in one message
WINDOW_MAX: Final = 32  # messages with entries that are on their way to one follower
PIECE_SIZE_MAX: Final = 512 << 10  # bytes of an image in one message
IMAGE_SIZE_MAX: Final = 1 << 30  # bytes of an image that a follower will gather
UNCOMMITTED_SIZE_MAX: Final = 64 << 20  # bytes that a leader takes without having decided them
READS_MAX: Final = 10_000  # that wait at a time
VOTERS_MAX: Final = 31
OBSERVERS_MAX: Final = 1000  # that a leader keeps
OBSERVER_PATIENCE: Final = 10  # election timeouts of silence after which one is let go


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How patient the nodes are."""

    election_timeout_ms: int = 1000
    heartbeat_interval_ms: int = 200

    def __post_init__(self) -> None:
        assert self.election_timeout_ms > 0
        assert self.heartbeat_interval_ms > 0
