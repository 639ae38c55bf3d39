"""The directory of one log, and what the node recorded of the log before it stopped or crashed."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from quipu.runtime.disks.disk import Disk
from quipu.storage.segments.segment import OpenSegments


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """The directory of one log: where it lies, and whose log it holds."""

    disk: Disk
    path: str
    name: str  # of the log: TOPIC-PARTITION
    topic_id: UUID = ZERO_UUID
    node_id: NodeId = NO_NODE  # whose files these are; written into the checkpoints of this node
    open_segments: OpenSegments = field(default_factory=OpenSegments)  # shared by a node's logs

    @property
    def entry(self) -> str:
        """The last part of the path: the key under which the node log records this log."""
        return self.path.rpartition("/")[2]


class CleanShutdown(NamedTuple):
    """A log as it was closed: its offsets are known without opening its files."""

    base_log: int  # of the active segment
    active_size: int
    size_bytes: int
    end_offset: int
    log_end: int
    log_start_offset: int
    oldest_ms: int  # timestamp of the newest record in the oldest segment
    epochs: bytes  # as in a checkpoint, key `starts`
    producers: bytes
    stated_start_offset: int = -1  # log start that its batches say; -1: the log start
    local_start_offset: int = -1  # -1: the log start
    tiered: bytes = b""  # as in a checkpoint


class RecoveryPoint(NamedTuple):
    """What the node log records of one log."""

    flushed_log: int = 0  # log offsets below were durable: if they are missing, that is damage
    clean: CleanShutdown | None = None  # how it was closed last; valid if its files agree
    is_current: bool = False  # the node was shut down cleanly: `clean` needs no check
    committed_log: int = 0  # log offsets below were on every in-sync replica; <= flushed_log


NO_RECOVERY_POINT: Final = RecoveryPoint()
