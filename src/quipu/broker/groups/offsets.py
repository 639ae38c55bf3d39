"""Commits, reads, deletes and expires the offsets of groups.

A commit is checked against its group, made durable, and only then visible (broker.groups.E3): the
offset from which a consumer continues survives a crash.

Not here: topics by name and the limits on metadata (handlers/k08_offset_commit).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from quipu.broker.groups.group import CONSUMER
from quipu.broker.groups.kafka_records import (
    CommittedOffset,
    OffsetKey,
    group_tombstones,
    offset_record,
    offset_tombstone,
)
from quipu.broker.groups.limits import GROUP_ID_SIZE_MAX, offsets_size
from quipu.broker.groups.registry import STEP_OFFSETS, GroupEntry
from quipu.broker.groups.states import State
from quipu.model.errors import Code
from quipu.runtime.log_limits import LimitedLog

if TYPE_CHECKING:  # it holds them
    from quipu.broker.groups.shard import GroupShard
    from quipu.controller.state import ClusterState
    from quipu.controller.topic_state import Topic


class Sender(NamedTuple):
    """The sender of a commit: a member of the group, or a tool with generation -1."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    client_host: str = ""
    names_ids: bool = False  # it named the topics by their ids


async def commit(
    shard: "GroupShard", sender: Sender, offsets: Mapping[OffsetKey, CommittedOffset], *,
    no_group: Code,
) -> Code:
    """Commit `offsets`; `no_group` is the code if a member's group does not exist."""
    entry = shard.registry.entries.get(sender.group_id)
    if entry is None and sender.generation >= 0:
        return no_group
    if len(sender.group_id) > GROUP_ID_SIZE_MAX:
        return Code.INVALID_GROUP_ID
    if entry is None and offsets:
        entry = shard.create(sender.group_id, sender.client_host)
        if entry is None:
            return Code.POLICY_VIOLATION
    if entry is None:
        return Code.NONE
    code = entry.group.check_commit(
        sender.member_id, sender.instance_id, sender.generation, shard.now())
    if code is not Code.NONE or not offsets:
        return code
    registry, usage = shard.registry, shard.registry.usage
    limit = usage.why_no_room(entry.offsets, offsets)
    if limit:
        usage.refused(limit, sender.group_id)
        if entry.is_blank and entry.group.generation == 0:
            shard.forget(entry)
        return Code.INVALID_COMMIT_OFFSET_SIZE
    records = [offset_record(sender.group_id, key, kept, by_id=sender.names_ids)
               for key, kept in offsets.items()]
    count, size = len(offsets), offsets_size(offsets.values())
    usage.reserve(count, size)
    under_way = entry.begin_commit(offsets)
    try:
        return await shard.keep(records, lambda: registry.keep_offsets(entry, offsets))
    finally:
        entry.end_commit(under_way)
        usage.reserve(-count, -size)


async def delete(shard: "GroupShard", group_id: str, keys: Sequence[OffsetKey]) -> Code:
    """Delete offsets of a group; those that do not exist are ignored."""
    entry = shard.registry.entries[group_id]
    found = [key for key in keys if key in entry.offsets]
    if not found:
        return Code.NONE
    return await shard.keep(
        [offset_tombstone(group_id, key) for key in found],
        lambda: shard.registry.drop_offsets(entry, found))


def check_delete(shard: "GroupShard", group_id: str) -> Code:
    """The error code if offsets of this group may not be deleted."""
    group = shard.find(group_id)
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        return Code.NON_EMPTY_GROUP
    return Code.NONE


def expire(
    shard: "GroupShard", cluster: "ClusterState", limited: LimitedLog, *, now_ms: int,
    retention_ms: int,
) -> None:
    """Delete void and expired offsets, and then groups without members and offsets."""
    for group_id, entry in list(shard.registry.entries.items()):
        if entry.commits:
            continue  # the expired offsets may be committed again at this moment
        drop(shard, entry, entry.void(cluster))
        keys = entry.expired(now_ms, retention_ms)
        drop(shard, entry, keys)
        if keys:
            limited.info("offsets expired", "group %r: %d offsets expired", group_id, len(keys))
        if entry.is_blank:
            shard.forget(entry)
            shard.append(group_tombstones(group_id))


def drop(shard: "GroupShard", entry: GroupEntry, keys: Sequence[OffsetKey]) -> None:
    """Delete offsets at once, without waiting for their tombstones.

    None of them may be on its way to the log: the tombstone would come after it.
    """
    if keys:
        assert not entry.commits, entry.group.group_id
        shard.registry.drop_offsets(entry, keys)
        shard.append([offset_tombstone(entry.group.group_id, key) for key in keys])


def forget_topic(shard: "GroupShard", topic: "Topic") -> Iterator[None]:
    """Delete the offsets of a deleted topic, in steps of some groups.

    What is passed over here is void all the same, and goes with what expires.
    """
    checked_count = 0
    for entry in list(shard.registry.entries.values()):
        if shard.unavailable is not Code.NONE:
            return  # it is being read, or another node leads
        if not entry.commits:
            drop(shard, entry, [key for key, kept in entry.offsets.items()
                                if key[0] == topic.name and kept.topic_id == topic.topic_id])
        checked_count += 1 + len(entry.offsets)
        if checked_count >= STEP_OFFSETS:
            checked_count = 0
            yield


def find(
    shard: "GroupShard", group_id: str, topic: "Topic", partition: int
) -> CommittedOffset | None:
    """The committed offset of a group for a partition, if there is one (broker.groups.E4)."""
    entry = shard.registry.entries.get(group_id)
    kept = entry.offsets.get((topic.name, partition)) if entry is not None else None
    return kept if kept is not None and kept.topic_id == topic.topic_id else None


def all_of(shard: "GroupShard", group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
    """All committed offsets of a group, and void ones."""
    entry: GroupEntry | None = shard.registry.entries.get(group_id)
    return entry.offsets if entry is not None else {}
