"""The groups of one shard and their offsets: the state that its log keeps.

Invariants
    broker.groups.E1  applying `records()` to an empty registry gives an equal registry: they are a
                      snapshot
    broker.groups.E2  groups and offsets count in the node's `GroupUsage` for as long as they are
                      in the registry
    broker.groups.E3  an offset is in the registry only after it is durable
    broker.groups.E4  the records of a snapshot are small: offsets are split over several, so that
                      each is fast to apply

Not here: writing records (coordinators/), deciding about members (group.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, assert_never
from uuid import UUID

from quipu.broker.groups.events import MonotonicMs
from quipu.broker.groups.group import Group
from quipu.broker.groups.limits import GROUP_MAX_COUNT, GroupUsage, offsets_size
from quipu.broker.groups.records import (
    GroupChanged,
    GroupDeleted,
    OffsetRecord,
    OffsetsCommitted,
    OffsetsDeleted,
    Record,
    record_of,
    snapshot_of,
)
from quipu.broker.groups.restore import restore
from quipu.broker.groups.states import State
from quipu.model.ids import NO_TIMESTAMP, TimestampMs

OFFSETS_PER_RECORD: Final = 500  # of a snapshot (broker.groups.E4)
STEP_OFFSETS: Final = 20_000  # checked in one step, for those of a deleted topic

OffsetKey: TypeAlias = tuple[UUID, int]  # topic id, partition


class CommittedOffset(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: TimestampMs
    expires_ms: TimestampMs = NO_TIMESTAMP  # -1: by the broker's retention


@dataclass(slots=True)
class GroupEntry:
    """A group, its offsets, and since when it has had no members."""

    group: Group
    empty_since_ms: TimestampMs
    offsets: dict[OffsetKey, CommittedOffset] = field(default_factory=dict)
    commits_under_way: int = 0  # that are not durable yet
    size: int = 0  # of the group, as it was last counted (broker.groups.E2)
    made_by: str = ""  # the address that created it; unknown for groups from the log

    @property
    def is_blank(self) -> bool:
        """Whether it has no members, offsets or commits, so that deleting it loses nothing."""
        group = self.group
        is_used = self.offsets or self.commits_under_way or group.pending
        return group.state is State.EMPTY and not is_used

    def expired(
        self, now_ms: int, retention_ms: int, name_of: Callable[[UUID], str | None]
    ) -> list[OffsetKey]:
        """The offsets whose retention time is over.

        While the group has members, offsets of topics that they are subscribed to do not expire.
        In a group without members, the retention time begins when the last member left, or when
        the offset was committed, whichever is later.
        """
        group = self.group
        topics = group.subscribed_topics()
        if topics is None or (group.state is not State.EMPTY and not topics):
            return []
        had_members = group.state is State.EMPTY and group.protocol_type is not None
        left_ms = self.empty_since_ms if had_members else NO_TIMESTAMP
        keys = []
        for key, kept in self.offsets.items():
            since_ms = max(left_ms, kept.committed_ms)
            end_ms = kept.expires_ms if kept.expires_ms >= 0 else since_ms + retention_ms
            if end_ms <= now_ms and name_of(key[0]) not in topics:
                keys.append(key)
        return keys


class GroupRegistry:
    """The groups by id."""

    def __init__(self, usage: GroupUsage) -> None:
        self.usage = usage
        self.limits = usage.limits()
        self.entries: dict[str, GroupEntry] = {}
        self._topic_ids: dict[UUID, UUID] = {}  # one object for each, however many offsets name it

    def create(self, group_id: str, now_ms: TimestampMs, *, made_by: str = "") -> GroupEntry | None:
        """Create a group; None if there are too many, or too many of the same address."""
        assert group_id not in self.entries
        if not self.usage.may_make(made_by):
            self.usage.refused(GROUP_MAX_COUNT, group_id)
            return None
        entry = self._entry(group_id, now_ms)
        entry.made_by = made_by
        if made_by:
            self.usage.made(made_by, 1)
        return entry

    def forget(self, entry: GroupEntry) -> None:
        """Remove a group and its offsets."""
        del self.entries[entry.group.group_id]
        self.usage.group_count -= 1
        if entry.made_by:
            self.usage.made(entry.made_by, -1)
        self.usage.grown(-entry.size)
        self.drop_offsets(entry, list(entry.offsets))

    def count(self, entry: GroupEntry) -> None:
        """Count the bytes that the group uses now (broker.groups.E2)."""
        size = entry.group.size
        self.usage.grown(size - entry.size)
        entry.size = size

    def close(self) -> None:
        """Remove all groups: another node coordinates them now."""
        for entry in list(self.entries.values()):
            self.forget(entry)

    # -- offsets

    def keep_offsets(self, entry: GroupEntry, offsets: Mapping[OffsetKey, CommittedOffset]) -> None:
        """Add durable offsets (broker.groups.E3), unless the group was deleted meanwhile."""
        if self.entries.get(entry.group.group_id) is not entry:
            return
        old = [entry.offsets[key] for key in offsets if key in entry.offsets]
        self.usage.kept(len(offsets) - len(old), offsets_size(offsets.values()) - offsets_size(old))
        entry.offsets.update(offsets)

    def drop_offsets(self, entry: GroupEntry, keys: Iterable[OffsetKey]) -> None:
        """Remove these offsets, if they exist."""
        dropped = [entry.offsets.pop(key) for key in keys if key in entry.offsets]
        self.usage.kept(-len(dropped), -offsets_size(dropped))

    def forget_topic(self, topic_id: UUID) -> Iterator[None]:
        """Remove the offsets of a deleted topic, in steps of some groups."""
        checked_count = 0
        for entry in list(self.entries.values()):
            self.drop_offsets(entry, [key for key in entry.offsets if key[0] == topic_id])
            checked_count += 1 + len(entry.offsets)
            if checked_count >= STEP_OFFSETS:
                checked_count = 0
                yield

    # -- the log

    def apply(self, record: Record, now: MonotonicMs) -> None:
        """Apply one record of the log; the sessions of its members begin `now`."""
        match record:
            case GroupChanged():
                entry = self._entry(record.group_id, record.timestamp_ms)
                entry.group = restore(snapshot_of(record), self.limits, now)
                entry.empty_since_ms = TimestampMs(record.timestamp_ms)
                self.count(entry)
            case GroupDeleted():
                if record.group_id in self.entries:
                    self.forget(self.entries[record.group_id])
            case OffsetsCommitted():
                entry = self._entry(record.group_id, NO_TIMESTAMP)
                same = self._topic_ids.setdefault
                self.keep_offsets(entry, {
                    (same(each.topic_id, each.topic_id), each.partition): _committed(each)
                    for each in record.offsets})
            case OffsetsDeleted():
                entry = self._entry(record.group_id, NO_TIMESTAMP)
                self.drop_offsets(entry, [(each.topic_id, each.partition)
                                          for each in record.partitions])
            case _:
                assert_never(record)

    def _entry(self, group_id: str, timestamp_ms: int) -> GroupEntry:
        entry = self.entries.get(group_id)
        if entry is None:
            entry = GroupEntry(Group(group_id, self.limits), TimestampMs(timestamp_ms))
            self.entries[group_id] = entry
            self.usage.group_count += 1
            self.count(entry)
        return entry

    def records(self) -> Iterator[Record]:
        """Records that build this registry from nothing (broker.groups.E1).

        A group whose last change is still being written is included with that change; its record
        follows and repeats it.  Groups may be added, changed and removed during the iteration:
        their records follow the snapshot in the log.
        """
        for group_id in list(self.entries):
            entry = self.entries.get(group_id)
            if entry is None or entry.group.state is State.DEAD:
                continue
            if entry.group.generation > 0:
                yield record_of(entry.group.snapshot(), entry.empty_since_ms)
            kept = list(entry.offsets.items())
            for start in range(0, len(kept), OFFSETS_PER_RECORD):  # broker.groups.E4
                yield OffsetsCommitted(group_id=group_id, offsets=[
                    offset_record(*each) for each in kept[start : start + OFFSETS_PER_RECORD]])


def offset_record(key: OffsetKey, kept: CommittedOffset) -> OffsetRecord:
    return OffsetRecord(
        topic_id=key[0], partition=key[1], offset=kept.offset, leader_epoch=kept.leader_epoch,
        metadata=kept.metadata, committed_ms=kept.committed_ms, expires_ms=kept.expires_ms)


def _committed(record: OffsetRecord) -> CommittedOffset:
    return CommittedOffset(
        record.offset, record.leader_epoch, record.metadata, TimestampMs(record.committed_ms),
        TimestampMs(record.expires_ms))
