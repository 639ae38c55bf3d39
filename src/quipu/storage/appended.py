"""What a log returns for an append and a truncation, what it reports, and where it ends."""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.runtime.disks.disk import DiskError

if TYPE_CHECKING:
    from quipu.storage.log import Log

NO_LOG_OFFSET: Final = LogOffset(-1)


class AppendedBatch(NamedTuple):
    """The offsets that a batch was given, or had from before if it is a duplicate."""

    base_offset: Offset
    last_offset: Offset
    log_offset: LogOffset  # -1 for a duplicate
    duplicate: bool
    prefix: bytes = b""  # of a client's batch: what was written before it


class Truncation(NamedTuple):
    """What a truncation removed, and where it is kept."""

    log_offset: LogOffset  # where the log ends now
    offset: Offset
    log_end: LogOffset  # where it ended before
    end_offset: Offset
    size_bytes: int
    kept: tuple[str, ...]  # paths, in the order of the batches in them


class LogObserver(Protocol):
    """Gets the reports of many logs: the data directory."""

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


class LogPositions(Protocol):
    """Where a log ends, and who led when it was last written to: to be read, never assigned."""

    @property
    def log_end(self) -> LogOffset: ...
    @property
    def end_offset(self) -> Offset: ...
    @property
    def leader_epoch(self) -> Epoch: ...
    @property
    def is_durable(self) -> bool: ...
