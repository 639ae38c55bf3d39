"""The callbacks of a connection: those of its owner, or none after the owner has closed it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol


class FrameHandler(Protocol):
    """The callbacks that a connection's owner implements."""

    def frame_received(self, frame: memoryview) -> None:
        """Handle one frame; its bytes are overwritten once this returns (runtime.N1)."""
        ...

    def drained(self) -> None:
        """All buffers have been sent, after a pause or after the peer was slow."""
        ...

    def connection_lost(self) -> None:
        """The connection is closed: nothing can be sent any more."""
        ...


@dataclass(slots=True)
class LastBytes:
    """The handler of a connection that closes once its last bytes are sent, or is closed."""

    close: Callable[[], None] | None

    def frame_received(self, frame: memoryview) -> None:
        """Ignore it: the owner has closed the connection."""

    def drained(self) -> None:
        if self.close is not None:
            self.close()

    def connection_lost(self) -> None:
        """Do nothing: the owner has been notified before."""


NOBODY: Final = LastBytes(None)
