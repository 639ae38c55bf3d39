"""How long this node may speak for the cluster without hearing from its controller again.

The controller takes a node for dead when it has been silent for a time, and lets others lead in
its place.  A lease ends before that, so a node that cannot be heard stops by itself: it refuses
writes, and does not say that nothing newer exists.
"""

from typing import Final, Protocol

from quipu.runtime.clock import Clock, SystemClock

ENDLESS: Final = float("inf")


class Leased(Protocol):
    """Whoever talks to the controller."""

    @property
    def lease_until(self) -> float:
        """In the clock's monotonic seconds; `ENDLESS` for a node that is alone."""
        ...


class Lease:
    """The lease, asked again for every use."""

    __slots__ = ("_cluster", "monotonic")

    def __init__(self, cluster: Leased, clock: Clock) -> None:
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
