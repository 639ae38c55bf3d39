"""What a log tells: where a batch went, and what happens to it as a whole."""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disk import DiskError

if TYPE_CHECKING:
    from quipu.storage.log import Log

NO_LOG_OFFSET: Final = LogOffset(-1)


class Appended(NamedTuple):
    """Where a batch went."""

    base_offset: Offset
    last_offset: Offset
    log_offset: LogOffset  # -1 for a duplicate
    duplicate: bool
    prefix: bytes = b""  # of a client's batch: what was written before it


class Cut(NamedTuple):
    """What a truncation removed, and where it is kept."""

    log_offset: LogOffset  # where the log ends now
    offset: Offset
    log_end: LogOffset  # where it ended before
    end_offset: Offset
    size_bytes: int
    kept: tuple[str, ...]  # paths, in the order of the batches in them


class Watcher(Protocol):
    """Someone who keeps an eye on many logs."""

    def dirtied(self, log: "Log") -> None:
        """`log` has something to flush; it had nothing."""
        ...

    def flushed(self, log: "Log") -> None:
        """A flush of `log` ended well."""
        ...

    def refused(self, log: "Log", error: DiskError) -> None:
        """The disk refused a write to `log`."""
        ...

    def committed(self, log: "Log") -> None:
        """The committed mark of `log` has moved."""
        ...

    def truncating(self, log: "Log", log_end: LogOffset) -> None:
        """`log` is about to end at `log_end`: forget what was beyond, durably."""
        ...
