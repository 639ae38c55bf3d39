"""Who a partition talks to: those who wait for its records, and the driver of its chain."""

from typing import Protocol

from quipu.chain.replica import Replica
from quipu.storage.log import Appended


class Waiter(Protocol):
    """Someone who waits for records."""

    def advanced(self, size: int) -> None:
        """About `size` more bytes can be read; 0 says: look again, something else changed."""
        ...

    def finish(self) -> None:
        """The wait is over."""
        ...


class Chain(Protocol):
    """The driver of this partition's part in a chain; see `replication.partition_chain`."""

    @property
    def replica(self) -> Replica | None:
        """The core; None while nothing had to be replicated."""
        ...

    def begin(self) -> None:
        """The first append of an epoch is about to come: write what must come before it."""
        ...

    def appended(self) -> None:
        """There is more in the log than before."""
        ...

    def appended_batch(self, appended: Appended, batch: memoryview) -> None:
        """The same, of a client's batch that is borrowed."""
        ...
