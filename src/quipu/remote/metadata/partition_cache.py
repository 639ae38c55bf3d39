"""All that is known of one partition's remote segments: what its leader serves reads from.

`plan_add` and `plan_update` decide what an event changes, `apply` carries it out.  In between, the
caller stores the change: the cache is never ahead of what is stored.

Invariants
    remote.C1  a plan changes nothing; `apply` makes exactly the change that was planned, and is
               called only once that is stored
    remote.C2  a segment is known from COPY_SEGMENT_STARTED until DELETE_SEGMENT_FINISHED, and each
               of its leader epochs has it; of the referenced ones, each is COPY_SEGMENT_FINISHED
    remote.C3  a repeated event changes the segment's own entry, and no reference

Not here: which segment of an epoch is read (epoch_state.py), storing (changes.py, leading.py).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from quipu.remote.metadata.epoch_state import EpochChange, LeaderEpochState, SegmentReference
from quipu.remote.metadata.errors import (
    CorruptMetadata,
    InvalidMetadata,
    InvalidTransition,
    RemoteResourceNotFound,
)
from quipu.remote.metadata.segment_metadata import (
    INT64_MAX,
    EpochRange,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
)
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    SEGMENT_NEXT,
    RemoteLogSegmentState,
    check_transition,
)

_Decide = Callable[[LeaderEpochState, EpochRange, UUID], EpochChange]

# What each state means for an epoch when a segment enters it.
_DECIDE: dict[RemoteLogSegmentState, _Decide] = {
    COPY_STARTED: lambda epoch, _, segment: epoch.copy_started(segment),
    COPY_FINISHED: lambda epoch, offsets, segment: epoch.copy_finished(
        SegmentReference(offsets.start, offsets.end, segment)),
    DELETE_STARTED: lambda epoch, offsets, segment: epoch.delete_started(offsets.start, segment),
    DELETE_FINISHED: lambda epoch, _, segment: epoch.delete_finished(segment),
}
assert _DECIDE.keys() == set(RemoteLogSegmentState)


class SegmentChange(NamedTuple):
    """What one event changes in a partition."""

    before: RemoteLogSegmentMetadata | None  # None: the segment is new
    after: RemoteLogSegmentMetadata
    epochs: tuple[EpochChange, ...]  # empty for a repeated event (remote.C3)


class PartitionCache:
    """The remote segments of one partition, by id and by leader epoch."""

    __slots__ = ("_epochs", "_missing_count", "_segments", "partition")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self._segments: dict[UUID, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, LeaderEpochState] = {}
        self._missing_count = 0  # entries of epochs that loaded segments lack so far

    # --- events -----------------------------------------------------------------------------

    def plan_add(self, added: RemoteLogSegmentMetadata) -> SegmentChange:
        """A copy begins: the change that records it."""
        self._check_partition(added.segment_id.partition)
        if added.state is not COPY_STARTED:
            raise InvalidMetadata(f"{added.segment_id} is added as {added.state.name}; a segment "
                                  f"begins as {COPY_STARTED.name}")
        before = self._segments.get(added.segment_id.id)
        if before is not None and not before.is_same_segment(added):
            raise InvalidTransition(f"{added.segment_id} exists with other offsets; give every "
                                    "copy an id of its own")
        return self._plan(before, added)

    def plan_update(self, update: RemoteLogSegmentMetadataUpdate) -> SegmentChange:
        """A segment's state changes: the change that records it."""
        self._check_partition(update.segment_id.partition)
        if update.state is COPY_STARTED:
            raise InvalidMetadata(f"{update.segment_id} cannot be updated to {COPY_STARTED.name}; "
                                  "add it")
        before = self._segments.get(update.segment_id.id)
        if before is None:
            raise RemoteResourceNotFound(f"{update.segment_id} is unknown, or was deleted")
        return self._plan(before, before.with_update(update))

    def _plan(
        self, before: RemoteLogSegmentMetadata | None, after: RemoteLogSegmentMetadata
    ) -> SegmentChange:
        source = before.state if before is not None else None
        check_transition(SEGMENT_NEXT, source, after.state, str(after.segment_id))
        if source is after.state:
            return SegmentChange(before, after, ())  # remote.C3
        segment, decide = after.segment_id.id, _DECIDE[after.state]
        return SegmentChange(before, after, tuple(
            decide(self._epochs.get(offsets.epoch) or LeaderEpochState(offsets.epoch),
                   offsets, segment)
            for offsets in after.epoch_ranges()))

    def apply(self, change: SegmentChange) -> None:
        """Carry out a planned change, now that it is stored (remote.C1)."""
        after, segment = change.after, change.after.segment_id.id
        assert self._segments.get(segment) is change.before, change
        for epoch_change in change.epochs:
            self._epoch(epoch_change.epoch).apply(epoch_change)
        if change.before is None:
            self._count(after, 1)
        if after.state is DELETE_FINISHED:
            self._count(after, -1)
            del self._segments[segment]
        else:
            self._segments[segment] = after

    def _epoch(self, epoch: int) -> LeaderEpochState:
        return self._epochs.setdefault(epoch, LeaderEpochState(epoch))

    def _count(self, segment: RemoteLogSegmentMetadata, sign: int) -> None:
        for epoch in segment.segment_leader_epochs:
            self._epoch(epoch).size_bytes += sign * segment.segment_size_bytes

    def _check_partition(self, partition: TopicIdPartition) -> None:
        if partition != self.partition:
            raise InvalidMetadata(f"{partition} is not {self.partition}")

    # --- reads ------------------------------------------------------------------------------

    def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The finished segment in which `offset` of leader epoch `epoch` is read."""
        state = self._epochs.get(epoch)
        found = state.find(offset) if state is not None else None
        return self._segments[found.segment] if found is not None else None

    def segment(self, segment: UUID) -> RemoteLogSegmentMetadata | None:
        return self._segments.get(segment)

    def epoch(self, epoch: int) -> LeaderEpochState | None:
        return self._epochs.get(epoch)

    def highest_offset(self, epoch: int) -> int | None:
        """The highest offset ever copied in `epoch`."""
        state = self._epochs.get(epoch)
        return state.highest if state is not None else None

    def segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """All segments, in no particular order."""
        return iter(self._segments.values())

    def segments_of(self, epoch: int) -> list[RemoteLogSegmentMetadata]:
        """All segments with records of `epoch`, by start offset."""
        state = self._epochs.get(epoch)
        found = [self._segments[segment] for segment in state.segments()] if state else []
        return sorted(found, key=lambda each: each.order)

    def size_bytes(self, epoch: int) -> int:
        """The size of all segments with records of `epoch`."""
        state = self._epochs.get(epoch)
        return state.size_bytes if state is not None else 0

    # --- loading ----------------------------------------------------------------------------

    def load_segment(self, segment: RemoteLogSegmentMetadata) -> None:
        """Take in a stored segment; all segments come before their epochs' entries."""
        if segment.state is DELETE_FINISHED:
            raise self._corrupt(f"{segment.segment_id} is there, though its deletion is finished")
        self._segments[segment.segment_id.id] = segment
        self._missing_count += len(segment.segment_leader_epochs)
        self._count(segment, 1)

    def load_highest(self, epoch: int, highest: int) -> None:
        self._epoch(epoch).highest = highest

    def load_reference(self, epoch: int, reference: SegmentReference) -> None:
        segment = self._segments.get(reference.segment)
        if segment is None or segment.state is not COPY_FINISHED or EpochRange(
                epoch, reference.start, reference.end) not in segment.epoch_ranges():
            raise self._corrupt(f"leader epoch {epoch} reads {reference} from a segment that is "
                                f"{segment.state.name if segment else 'not there'}")  # remote.C2
        state = self._epoch(epoch)
        if reference.segment in state.unreferenced:
            raise self._corrupt(f"leader epoch {epoch} has segment {reference.segment} twice")
        state.load(reference)
        self._missing_count -= 1

    def load_unreferenced(self, epoch: int, segment: UUID) -> None:
        known = self._segments.get(segment)
        if known is None or epoch not in known.segment_leader_epochs:
            raise self._corrupt(f"leader epoch {epoch} has segment {segment}, which is not there")
        state = self._epoch(epoch)
        reference = state.reference_at(known.segment_leader_epochs[epoch])
        if segment in state.unreferenced or (reference and reference.segment == segment):
            raise self._corrupt(f"leader epoch {epoch} has segment {segment} twice")
        state.unreferenced.add(segment)
        self._missing_count -= 1

    def check_loaded(self) -> None:
        """Raise `CorruptMetadata` unless what was loaded is complete (remote.C2).

        Each entry was checked when it was loaded, so it is enough to count them.
        """
        if self._missing_count:
            raise self._corrupt(f"{abs(self._missing_count)} entries of leader epochs are missing")
        for state in self._epochs.values():
            last = state.find_floor(INT64_MAX)
            if last is not None and (state.highest is None or state.highest < last.end):
                raise self._corrupt(f"leader epoch {state.epoch} has records up to {last.end}, "
                                    f"but its highest offset is {state.highest}")

    def _corrupt(self, what: str) -> CorruptMetadata:
        return CorruptMetadata(f"stored metadata of {self.partition}: {what}; restore it from a "
                               "backup")

    def invariants(self) -> None:
        """Assert what holds between two events."""
        entries: dict[int, set[UUID]] = {}
        for state in self._epochs.values():
            state.invariants()
            entries[state.epoch] = set(state.segments())
        sizes = dict.fromkeys(self._epochs, 0)
        for segment in self._segments.values():
            assert segment.state is not DELETE_FINISHED, segment  # remote.C2
            for epoch in segment.segment_leader_epochs:
                assert segment.segment_id.id in entries[epoch], (segment, epoch)  # remote.C2
                entries[epoch].discard(segment.segment_id.id)
                sizes[epoch] += segment.segment_size_bytes
        assert not any(entries.values()), entries  # remote.C2
        assert all(state.size_bytes == sizes[epoch] for epoch, state in self._epochs.items())
