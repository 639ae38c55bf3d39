"""What a core and its driver exchange: what was found on the disk, and what is to be done next."""

from dataclasses import dataclass
from typing import NamedTuple

from quipu.model.ids import RaftIndex, Term
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    NO_INDEX,
    NO_STATE,
    NO_TERM,
    HardState,
    OutgoingMessage,
    RaftEntry,
    Snapshot,
)
from quipu.raft.reads import ReadState


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What a node finds on its disk when it starts; all defaults if it never ran."""

    hard_state: HardState = NO_STATE
    snapshot_index: RaftIndex = NO_INDEX
    snapshot_term: Term = NO_TERM
    configuration: Configuration | None = None  # of the snapshot
    entries: tuple[RaftEntry, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether the node has never written anything."""
        return self.snapshot_index == 0 and not self.entries and self.hard_state.term == 0


class Ready(NamedTuple):
    """What the driver does next; the docstring of quipu.raft says in which order."""

    number: int
    messages: list[OutgoingMessage]  # to be sent at once
    hard_state: HardState | None  # to be written first, if it has changed
    snapshot: Snapshot | None  # to be written next; replaces the whole log and the whole state
    entries: list[RaftEntry]  # to be written last; each replaces older ones at and above its index
    messages_when_durable: list[OutgoingMessage]  # raft.R2: to be sent after `persisted(number)`
    committed_entries: list[RaftEntry]  # to be applied; after the snapshot, if there is one
    read_states: list[ReadState]
    wants_snapshot: bool  # whether to call `snapshot_made`, now or later

    @property
    def is_to_be_written(self) -> bool:
        """Whether there is something to make durable."""
        return self.hard_state is not None or self.snapshot is not None or bool(self.entries)
