"""How long this node may lead partitions without another response of the controller.

The controller fences a node that has sent no heartbeat for a session timeout, and other nodes lead
its partitions.  The node's lease ends before that, so a node that the controller cannot reach stops
by itself: it refuses writes, and does not claim that there are no newer records.
"""

from typing import Final, Protocol

from quipu.runtime.clock import Clock, SystemClock

ENDLESS: Final = float("inf")


class LeaseSource(Protocol):
    """Knows the end of this node's lease; see `cluster.ClusterDriver`."""

    @property
    def lease_until(self) -> float:
        """The end, in the clock's monotonic seconds; `ENDLESS` for a cluster of one node."""
        ...


class Lease:
    """This node's lease; its end is read again for every use."""

    __slots__ = ("_cluster", "monotonic")

    def __init__(self, cluster: LeaseSource, clock: Clock) -> None:
        self._cluster = cluster
        self.monotonic = clock.monotonic

    @property
    def is_endless(self) -> bool:
        return self._cluster.lease_until == ENDLESS

    def holds(self) -> bool:
        until = self._cluster.lease_until
        return until == ENDLESS or self.monotonic() < until


class _Alone:
    lease_until = ENDLESS


ALWAYS: Final = Lease(_Alone(), SystemClock())
