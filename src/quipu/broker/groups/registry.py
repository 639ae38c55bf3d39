"""The groups of one shard and their offsets: the state that its log keeps.

Invariants
    E1  applying `records()` to an empty registry gives the same registry: a snapshot
    E2  what is held counts in the node's `GroupUsage`, from when it comes to when it goes
    E3  an offset is here only after it is kept
    E4  a record of a snapshot is small: offsets come in several, so that none takes long to read

Not here: writing records (group_log.py), deciding about members (group.py).
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
    image_of,
    record_of,
)
from quipu.broker.groups.restore import restore
from quipu.broker.groups.states import State
from quipu.model.ids import NO_TIMESTAMP, TimestampMs

OFFSETS_PER_RECORD: Final = 500  # of a snapshot (E4)
STEP_OFFSETS: Final = 20_000  # looked at in one step, for those of a topic that is gone

OffsetKey: TypeAlias = tuple[UUID, int]  # topic id, partition


class Committed(NamedTuple):
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: TimestampMs
    expires_ms: TimestampMs = NO_TIMESTAMP  # -1: by the broker's retention


@dataclass(slots=True)
class Entry:
    """A group, its offsets, and since when it has had no members."""

    group: Group
    empty_since_ms: TimestampMs
    offsets: dict[OffsetKey, Committed] = field(default_factory=dict)
    commits_under_way: int = 0  # that are not durable yet
    size: int = 0  # of the group, as it was last counted (E2)
    made_by: str = ""  # the address that made it; not known of what was read from the log

    @property
    def is_blank(self) -> bool:
        """Nothing would be lost by forgetting it."""
        group = self.group
        is_used = self.offsets or self.commits_under_way or group.pending
        return group.state is State.EMPTY and not is_used

    def expired(
        self, now_ms: int, retention_ms: int, name_of: Callable[[UUID], str | None]
    ) -> list[OffsetKey]:
        """Offsets that nobody has needed for the time that they are kept.

        While the group has members the offsets of topics that they read stay.  Those of a group
        without members are kept from the moment when the last one left, or when they were
        committed from outside, whichever is later.
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


class Registry:
    """The groups by id."""

    def __init__(self, usage: GroupUsage) -> None:
        self.usage = usage
        self.limits = usage.limits()
        self.entries: dict[str, Entry] = {}
        self._topic_ids: dict[UUID, UUID] = {}  # one object for each, however many offsets name it

    def create(self, group_id: str, now_ms: TimestampMs, *, made_by: str = "") -> Entry | None:
        """A new group of an address; None if there are too many, or too many of its making."""
        assert group_id not in self.entries
        if not self.usage.may_make(made_by):
            self.usage.refused(GROUP_MAX_COUNT, group_id)
            return None
        entry = self._entry(group_id, now_ms)
        entry.made_by = made_by
        if made_by:
            self.usage.made(made_by, 1)
        return entry

    def forget(self, entry: Entry) -> None:
        """The group is gone, and its offsets with it."""
        del self.entries[entry.group.group_id]
        self.usage.group_count -= 1
        if entry.made_by:
            self.usage.made(entry.made_by, -1)
        self.usage.grown(-entry.size)
        self.drop_offsets(entry, list(entry.offsets))

    def count(self, entry: Entry) -> None:
        """Count what the group takes up now (E2)."""
        size = entry.group.size
        self.usage.grown(size - entry.size)
        entry.size = size

    def close(self) -> None:
        """Another node has these groups now."""
        for entry in list(self.entries.values()):
            self.forget(entry)

    # -- offsets

    def keep_offsets(self, entry: Entry, offsets: Mapping[OffsetKey, Committed]) -> None:
        """These are kept (E3); of a group that was deleted meanwhile nothing is."""
        if self.entries.get(entry.group.group_id) is not entry:
            return
        old = [entry.offsets[key] for key in offsets if key in entry.offsets]
        self.usage.kept(len(offsets) - len(old), offsets_size(offsets.values()) - offsets_size(old))
        entry.offsets.update(offsets)

    def drop_offsets(self, entry: Entry, keys: Iterable[OffsetKey]) -> None:
        """Forget these, if they are there."""
        dropped = [entry.offsets.pop(key) for key in keys if key in entry.offsets]
        self.usage.kept(-len(dropped), -offsets_size(dropped))

    def forget_topic(self, topic_id: UUID) -> Iterator[None]:
        """The topic is gone, and ids are never used again; in steps, of some groups each."""
        looked_at = 0
        for entry in list(self.entries.values()):
            self.drop_offsets(entry, [key for key in entry.offsets if key[0] == topic_id])
            looked_at += 1 + len(entry.offsets)
            if looked_at >= STEP_OFFSETS:
                looked_at = 0
                yield

    # -- the log

    def apply(self, record: Record, now: MonotonicMs) -> None:
        """Take in one record of the log; members that it names have been heard `now`."""
        match record:
            case GroupChanged():
                entry = self._entry(record.group_id, record.timestamp_ms)
                entry.group = restore(image_of(record), self.limits, now)
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

    def _entry(self, group_id: str, timestamp_ms: int) -> Entry:
        entry = self.entries.get(group_id)
        if entry is None:
            entry = Entry(Group(group_id, self.limits), TimestampMs(timestamp_ms))
            self.entries[group_id] = entry
            self.usage.group_count += 1
            self.count(entry)
        return entry

    def records(self) -> Iterator[Record]:
        """Records that build this registry from nothing (E1).

        A group whose last change is still on its way to the log is written as it is already; the
        change follows and says the same once more.  Groups may come, change and go meanwhile: the
        log says so afterwards.
        """
        for group_id in list(self.entries):
            entry = self.entries.get(group_id)
            if entry is None or entry.group.state is State.DEAD:
                continue
            if entry.group.generation > 0:
                yield record_of(entry.group.image(), entry.empty_since_ms)
            kept = list(entry.offsets.items())
            for start in range(0, len(kept), OFFSETS_PER_RECORD):  # E4
                yield OffsetsCommitted(group_id=group_id, offsets=[
                    offset_record(*each) for each in kept[start : start + OFFSETS_PER_RECORD]])


def offset_record(key: OffsetKey, kept: Committed) -> OffsetRecord:
    return OffsetRecord(
        topic_id=key[0], partition=key[1], offset=kept.offset, leader_epoch=kept.leader_epoch,
        metadata=kept.metadata, committed_ms=kept.committed_ms, expires_ms=kept.expires_ms)


def _committed(record: OffsetRecord) -> Committed:
    return Committed(
        record.offset, record.leader_epoch, record.metadata, TimestampMs(record.committed_ms),
        TimestampMs(record.expires_ms))
