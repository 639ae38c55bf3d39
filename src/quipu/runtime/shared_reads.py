"""Reads that several fetches wait for.

A read of a key is in a table while it runs, and then, with its result, while a fetch waits for it
and no longer.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from quipu.model.errors import QuipuError

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class SharedRead(Generic[Key, Found]):
    """One read; it enters itself in the table `reads`."""

    __slots__ = ("_key", "_reads", "_waiting", "error", "found", "is_done")

    def __init__(self, reads: "dict[Key, SharedRead[Key, Found]]", key: Key) -> None:
        self._reads = reads
        self._key = key
        self._waiting: dict[WaitingRead, None] = {}
        self.found: Sequence[Found] = ()
        self.error: QuipuError | None = None
        self.is_done = False
        reads[key] = self

    def wait(self) -> "WaitingRead":
        """One more fetch waits for this."""
        waiting = WaitingRead(self)
        self._waiting[waiting] = None
        return waiting

    def complete(self, found: Sequence[Found], error: QuipuError | None) -> None:
        """Keep the result, and notify the fetches."""
        assert not self.is_done
        self.found, self.error, self.is_done = found, error, True
        for waiting in list(self._waiting):
            waiting.arrived()
        self._leave()

    def forget(self, waiting: "WaitingRead") -> None:
        """A fetch does not wait any more."""
        self._waiting.pop(waiting, None)
        self._leave()

    def _leave(self) -> None:
        """Leave the table, if it is done and no fetch waits."""
        if self.is_done and not self._waiting and self._reads.get(self._key) is self:
            del self._reads[self._key]


class WaitingRead:
    """A fetch that waits for a `SharedRead`: the `PendingRead` that it is given."""

    __slots__ = ("_callback", "_read")

    def __init__(self, read: "SharedRead[Any, Any]") -> None:
        self._read = read
        self._callback: Callable[[], None] | None = None

    def when_arrived(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` when repeating the read will return buffers or an error."""
        if self._read.is_done:
            arrived()
        else:
            self._callback = arrived

    def arrived(self) -> None:
        """Call back, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def cancel(self) -> None:
        """Release the bytes, and do not call back."""
        self._callback = None
        self._read.forget(self)
