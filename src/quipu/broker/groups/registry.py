"""The groups of one shard and their offsets: the state that its log keeps.

Invariants
    broker.groups.E1  applying `records()` to an empty registry gives an equal registry: they are a
                      snapshot
    broker.groups.E2  groups and offsets count in the node's `GroupUsage` for as long as they are
                      in the registry
    broker.groups.E3  an offset is in the registry only after it is durable
    broker.groups.E4  an offset of another topic id than the topic of its name has is void: nobody
                      is told of it

Not here: writing records (coordinators/), deciding about members (group.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, assert_never
from uuid import UUID

from quipu.broker.coordinators.record_log import KeyedRecord
from quipu.broker.groups.events import MonotonicMs
from quipu.broker.groups.group import Group
from quipu.broker.groups.kafka_records import (
    GROUP_METADATA,
    CommittedOffset,
    OffsetKey,
    decode_key,
    decode_offset,
    group_records,
    offset_record,
)
from quipu.broker.groups.limits import GROUP_MAX_COUNT, GroupUsage, offset_size, offsets_size
from quipu.broker.groups.records import (
    GroupChanged,
    GroupDeleted,
    OffsetRecord,
    OffsetsCommitted,
    OffsetsDeleted,
    Record,
    decode_record,
    snapshot_of,
)
from quipu.broker.groups.restore import restore
from quipu.broker.groups.states import State
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_TIMESTAMP, ZERO_UUID, TimestampMs

if TYPE_CHECKING:
    from quipu.controller.topic_state import Topic

STEP_OFFSETS: Final = 20_000  # checked in one step, for those of a deleted topic


@dataclass(slots=True)
class GroupEntry:
    """A group, its offsets, and since when it has had no members."""

    group: Group
    empty_since_ms: TimestampMs
    offsets: dict[OffsetKey, CommittedOffset] = field(default_factory=dict)
    commits: dict[int, Iterable[OffsetKey]] = field(default_factory=dict)  # not durable yet
    commit_count: int = 0  # ever begun
    size: int = 0  # of the group, as it was last counted (broker.groups.E2)
    made_by: str = ""  # the address that created it; unknown for groups from the log

    @property
    def is_blank(self) -> bool:
        """Whether it has no members, offsets or commits, so that deleting it loses nothing."""
        group = self.group
        is_used = self.offsets or self.commits or group.pending
        return group.state is State.EMPTY and not is_used

    def begin_commit(self, keys: Iterable[OffsetKey]) -> int:
        """Note that offsets are on their way to the log; returns a number for `end_commit`."""
        self.commit_count += 1
        self.commits[self.commit_count] = keys
        return self.commit_count

    def end_commit(self, number: int) -> None:
        del self.commits[number]

    def offset_keys(self) -> list[OffsetKey]:
        """The keys of all offsets, also of those that are not durable yet."""
        return list(dict.fromkeys(
            key for keys in (self.offsets, *self.commits.values()) for key in keys))

    def void(self, topics: "KnownTopics") -> list[OffsetKey]:
        """The offsets of topics that were deleted (broker.groups.E4)."""
        return [key for key, kept in self.offsets.items()
                if kept.topic_id != _id_of(topics, key[0])]

    def expired(self, now_ms: int, retention_ms: int) -> list[OffsetKey]:
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
            if end_ms <= now_ms and key[0] not in topics:
                keys.append(key)
        return keys


class GroupRegistry:
    """The groups by id."""

    def __init__(self, usage: GroupUsage) -> None:
        self.usage = usage
        self.limits = usage.limits()
        self.entries: dict[str, GroupEntry] = {}
        self._names: dict[str, str] = {}  # one object for each topic, however many offsets name it

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

    # -- the log

    def apply(self, record: KeyedRecord, now: MonotonicMs, topics: "KnownTopics") -> None:
        """Apply one record of the log; the sessions of its members begin `now`."""
        if record.key is None:
            self.apply_command(decode_record(record.value or b""), now, topics)
            return
        key = decode_key(record.key)
        if key.offset is not None:
            self._apply_offset(key.group_id, key.offset, record.value, topics)
        elif key.kind == GROUP_METADATA:
            pass  # for Kafka's tools; ours says more
        elif record.value is not None:
            changed = decode_record(record.value)
            if not isinstance(changed, GroupChanged):
                raise MalformedBytes(f"group {key.group_id!r}: its record is no group")
            self.apply_command(changed, now, topics)
        elif (entry := self.entries.get(key.group_id)) is not None:
            entry.group = Group(key.group_id, self.limits)
            self.count(entry)
            if not entry.offsets:
                self.forget(entry)

    def _apply_offset(
        self, group_id: str, key: OffsetKey, value: bytes | None, topics: "KnownTopics"
    ) -> None:
        if value is None:
            if (entry := self.entries.get(group_id)) is not None:
                self.drop_offsets(entry, [key])
            return
        kept = decode_offset(value)
        if kept.topic_id == ZERO_UUID:  # Kafka wrote it
            kept = kept._replace(topic_id=_id_of(topics, key[0]) or ZERO_UUID)
        entry = self.entries.get(group_id) or self._entry(group_id, NO_TIMESTAMP)
        old = entry.offsets.get(key)
        if old is None:
            self.usage.kept(1, offset_size(kept))
            entry.offsets[self._shared(key)] = kept
        else:
            self.usage.kept(0, offset_size(kept) - offset_size(old))
            entry.offsets[key] = kept

    def _shared(self, key: OffsetKey) -> OffsetKey:
        return self._names.setdefault(key[0], key[0]), key[1]

    def apply_command(self, record: Record, now: MonotonicMs, topics: "KnownTopics") -> None:
        """Apply a command of the time before there were records with keys."""
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
                self.keep_offsets(entry, {
                    self._shared((name, each.partition)): _committed(each)
                    for each in record.offsets
                    if (name := _name_of(topics, each.topic_id)) is not None})
            case OffsetsDeleted():
                entry = self._entry(record.group_id, NO_TIMESTAMP)
                self.drop_offsets(entry, [
                    (name, each.partition) for each in record.partitions
                    if (name := _name_of(topics, each.topic_id)) is not None])
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

    def records(self) -> Iterator[KeyedRecord]:
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
                yield from group_records(entry.group.snapshot(), entry.empty_since_ms)
            for key, kept in list(entry.offsets.items()):
                yield offset_record(group_id, key, kept)


class KnownTopics(Protocol):
    """The topics that there are; see `quipu.controller.state.ClusterState`."""

    @property
    def topics(self) -> Mapping[str, "Topic"]: ...
    @property
    def topics_by_id(self) -> Mapping[UUID, "Topic"]: ...


def _id_of(topics: KnownTopics, name: str) -> UUID | None:
    topic = topics.topics.get(name)
    return topic.topic_id if topic is not None else None


def _name_of(topics: KnownTopics, topic_id: UUID) -> str | None:
    topic = topics.topics_by_id.get(topic_id)
    return topic.name if topic is not None else None


def _committed(record: OffsetRecord) -> CommittedOffset:
    return CommittedOffset(
        record.topic_id, record.offset, record.leader_epoch, record.metadata,
        TimestampMs(record.committed_ms), TimestampMs(record.expires_ms))
