"""What the file descriptors of a process are used for, decided before any of them is.

    connections of clients      up to `max.connections`, and no more than half
    open files of logs          the rest; with more logs than that, they take turns (files.py)
    RESERVE                     everything else, and never given to either: listeners, links to
                                other nodes, probes, files that are open for a moment.  Whoever
                                connects is refused before the last LAST of them are touched

Descriptors are numbered from 0, and a new one has the lowest number that is free: so its number
tells how many are in use.
"""

import resource
from typing import Final, NamedTuple

from quipu.model.errors import Kind, QuipuError

RESERVE: Final = 160
LAST: Final = 64
LIMIT_MIN: Final = 256
LIMIT_MAX: Final = 1 << 20  # above, or without a limit, it is as if there were so many


class Shares(NamedTuple):
    """How many descriptors there are for what."""

    connections: int
    files: int


def shares(limit: int, *, connections_max: int) -> Shares:
    """Of a process that may have `limit` descriptors; raises if they are too few."""
    if not 0 <= limit <= LIMIT_MAX:
        limit = LIMIT_MAX
    if limit < LIMIT_MIN:
        raise QuipuError(f"this process may open {limit} files, a node needs {LIMIT_MIN} at least: "
                         "raise the limit (ulimit -n)", kind=Kind.INVALID)
    rest = limit - RESERVE
    connections = min(connections_max, rest // 2)
    return Shares(connections, rest - connections)


def connections_end() -> int:
    """The number of a descriptor from which on no connection may have it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (soft if 0 <= soft <= LIMIT_MAX else LIMIT_MAX) - LAST
