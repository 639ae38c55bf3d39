"""Where a log lives, and what its node remembers of it from before."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId
from quipu.runtime.disk import Disk
from quipu.storage.segment import OpenSegments


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One log's directory, on one disk."""

    disk: Disk
    directory: str
    name: str  # of the log: TOPIC-PARTITION
    topic_id: UUID = ZERO_UUID
    node_id: NodeId = NO_NODE  # whose files these are: told by the checkpoints that it writes
    opened: OpenSegments = field(default_factory=OpenSegments)  # shared by the logs of a node

    @property
    def entry(self) -> str:
        """What the directory is called where it lies, and the node's memory knows the log by."""
        return self.directory.rpartition("/")[2]


class CleanStop(NamedTuple):
    """A log as it was closed: enough to serve its offsets without looking at its files."""

    base_log: int  # of the active segment
    active_size: int
    size_bytes: int
    end_offset: int
    log_end: int
    log_start_offset: int
    oldest_ms: int  # of the newest record in the oldest segment
    epochs: bytes  # as in a checkpoint, key `starts`
    producers: bytes


class Memory(NamedTuple):
    """What a node remembers of a log."""

    flushed: int = 0  # log offsets below are durable: if they are not there, something is wrong
    clean: CleanStop | None = None  # how it was closed last; true if its files agree
    is_current: bool = False  # the node was stopped in order: no need to ask the files
    committed: int = 0  # log offsets below were on every serving replica; never above `flushed`


NOTHING: Final = Memory()
