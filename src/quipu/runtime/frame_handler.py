"""Who hears of a connection's frames: its owner, and nobody once that has let go of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol


class FrameHandler(Protocol):
    """What a connection's owner does with it."""

    def frame_received(self, frame: memoryview) -> None:
        """Deal with one frame; the bytes are gone when this returns (N1)."""
        ...

    def drained(self) -> None:
        """All that was given to `send` has left, after a pause or after the peer was slow."""
        ...

    def connection_lost(self) -> None:
        """Forget the connection; nothing can be sent any more."""
        ...


@dataclass(slots=True)
class LastBytes:
    """The handler while the last bytes leave, which then closes; or of a closed connection."""

    close: Callable[[], None] | None

    def frame_received(self, frame: memoryview) -> None:
        """Too late."""

    def drained(self) -> None:
        if self.close is not None:
            self.close()

    def connection_lost(self) -> None:
        """Nobody needs to know."""


NOBODY: Final = LastBytes(None)
