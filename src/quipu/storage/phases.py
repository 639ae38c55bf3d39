"""The life of a log, as a table: from its files on the disk to the moment when it is closed.

    UNLOADED   its files are not open.  After a clean shutdown a log stays so until it is used, and
               its offsets come from what the node recorded
    EMPTY      there is no file.  A log that may be a replica stays so until its first append: the
               checkpoint of another node, or a batch of this node's own
    OPEN       the last segment is active
    FAILED     `Log.failure` says why; opened again only if the reason passes by itself
    CLOSED     for good
"""

from enum import Enum
from typing import Final


class LogPhase(Enum):
    """Where a log is in its life."""

    UNLOADED = "unloaded"
    EMPTY = "empty"
    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


_NEXT: Final = {
    LogPhase.UNLOADED: {LogPhase.EMPTY, LogPhase.OPEN, LogPhase.FAILED, LogPhase.CLOSED},
    LogPhase.EMPTY: {LogPhase.OPEN, LogPhase.FAILED, LogPhase.CLOSED},
    # To UNLOADED by truncation, to EMPTY by a restart at another checkpoint; then it is loaded, or
    # begun, again.
    LogPhase.OPEN: {LogPhase.UNLOADED, LogPhase.EMPTY, LogPhase.FAILED, LogPhase.CLOSED},
    LogPhase.FAILED: {LogPhase.UNLOADED, LogPhase.CLOSED},  # UNLOADED: it is tried again
    LogPhase.CLOSED: set(),
}
assert _NEXT.keys() == set(LogPhase)


def require_step(current: LogPhase, target: LogPhase, log: str) -> None:
    """Check that a log may go from one phase to another; staying is always allowed."""
    assert target is current or target in _NEXT[current], (log, current, target)
