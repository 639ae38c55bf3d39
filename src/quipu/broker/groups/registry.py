"""The groups of one shard and their offsets: the state that its log keeps.

Invariants
    E1  applying `records()` to an empty registry gives the same registry: a snapshot
    E2  at most GROUP_COUNT_MAX groups and OFFSET_COUNT_MAX offsets are held, whatever clients do
    E3  an offset is here only after it is kept

Not here: writing records (group_log.py), deciding about members (group.py).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, assert_never
from uuid import UUID

from quipu.broker.groups.events import MonotonicMs
from quipu.broker.groups.group import Group, GroupLimits
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

GROUP_COUNT_MAX: Final = 10_000
OFFSET_COUNT_MAX: Final = 500_000

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

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.entries: dict[str, Entry] = {}

    def create(self, group_id: str, now_ms: TimestampMs) -> Entry | None:
        """A new group; None if there are too many (E2)."""
        assert group_id not in self.entries
        if len(self.entries) >= GROUP_COUNT_MAX:
            return None
        entry = self.entries[group_id] = Entry(Group(group_id, self.limits), now_ms)
        return entry

    def has_room(self, entry: Entry, keys: Iterable[OffsetKey]) -> bool:
        """Whether these offsets of a group can be kept (E2)."""
        added = sum(key not in entry.offsets for key in keys)
        return not added or added + self.offset_count() <= OFFSET_COUNT_MAX

    def offset_count(self) -> int:
        return sum(len(entry.offsets) for entry in self.entries.values())

    def forget_topic(self, topic_id: UUID) -> None:
        """The topic is gone, and ids are never used again."""
        for entry in self.entries.values():
            for key in [key for key in entry.offsets if key[0] == topic_id]:
                del entry.offsets[key]

    # -- the log

    def apply(self, record: Record, now: MonotonicMs) -> None:
        """Take in one record of the log; members that it names have been heard `now`."""
        match record:
            case GroupChanged():
                entry = self._entry(record.group_id, record.timestamp_ms)
                entry.group = restore(image_of(record), self.limits, now)
                entry.empty_since_ms = TimestampMs(record.timestamp_ms)
            case GroupDeleted():
                self.entries.pop(record.group_id, None)
            case OffsetsCommitted():
                entry = self._entry(record.group_id, NO_TIMESTAMP)
                entry.offsets.update(map(_committed, record.offsets))
            case OffsetsDeleted():
                entry = self._entry(record.group_id, NO_TIMESTAMP)
                for partition in record.partitions:
                    entry.offsets.pop((partition.topic_id, partition.partition), None)
            case _:
                assert_never(record)

    def _entry(self, group_id: str, timestamp_ms: int) -> Entry:
        entry = self.entries.get(group_id)
        if entry is None:
            entry = Entry(Group(group_id, self.limits), TimestampMs(timestamp_ms))
            self.entries[group_id] = entry
        return entry

    def records(self) -> Iterator[Record]:
        """Records that build this registry from nothing (E1).

        A group whose last change is still on its way to the log is written as it is already; the
        change follows and says the same once more.
        """
        for group_id, entry in self.entries.items():
            if entry.group.generation > 0:
                yield record_of(entry.group.image(), entry.empty_since_ms)
            if entry.offsets:
                offsets = [offset_record(key, kept) for key, kept in entry.offsets.items()]
                yield OffsetsCommitted(group_id=group_id, offsets=offsets)


def offset_record(key: OffsetKey, kept: Committed) -> OffsetRecord:
    return OffsetRecord(
        topic_id=key[0], partition=key[1], offset=kept.offset, leader_epoch=kept.leader_epoch,
        metadata=kept.metadata, committed_ms=kept.committed_ms, expires_ms=kept.expires_ms)


def _committed(record: OffsetRecord) -> tuple[OffsetKey, Committed]:
    kept = Committed(
        record.offset, record.leader_epoch, record.metadata, TimestampMs(record.committed_ms),
        TimestampMs(record.expires_ms))
    return (record.topic_id, record.partition), kept
