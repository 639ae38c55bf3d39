"""How the file descriptors of a process are divided, decided at the start.

    connections of clients      up to `max.connections`, and at most half
    open files of logs          the rest; more logs than that share them (files.py)
    RESERVE                     for everything else: listeners, links to other nodes, probes, files
                                that are open for a moment.  A client's connection that would use
                                one of the last LAST descriptors is refused

A new descriptor has the lowest number that is free, so its number shows how many are in use.
"""

import resource
from typing import Final, NamedTuple

from quipu.model.errors import ErrorKind, QuipuError

RESERVE: Final = 160
LAST: Final = 64
LIMIT_MIN: Final = 256
LIMIT_MAX: Final = 1 << 20  # a higher limit, or none, is treated as this one


class Shares(NamedTuple):
    """The number of descriptors for connections and for files."""

    connections: int
    files: int


def shares(limit: int, *, connections_max: int) -> Shares:
    """The shares of a process that may have `limit` descriptors; raises if they are too few."""
    if not 0 <= limit <= LIMIT_MAX:
        limit = LIMIT_MAX
    if limit < LIMIT_MIN:
        raise QuipuError(f"this process may open {limit} files, a node needs at least {LIMIT_MIN}: "
                         "raise the limit (ulimit -n)", kind=ErrorKind.INVALID)
    rest = limit - RESERVE
    connections = min(connections_max, rest // 2)
    return Shares(connections, rest - connections)


def connections_end() -> int:
    """The first descriptor number that no client's connection may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (soft if 0 <= soft <= LIMIT_MAX else LIMIT_MAX) - LAST
