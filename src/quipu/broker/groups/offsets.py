"""Commits, reads, deletes and expires the offsets of groups.

A commit is checked against its group, made durable, and only then visible (broker.groups.E3): the
offset from which a consumer continues survives a crash.

Not here: topics by name and the limits on metadata (handlers/k08_offset_commit).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from quipu.broker.groups.group import CONSUMER
from quipu.broker.groups.limits import GROUP_ID_SIZE_MAX, offsets_size
from quipu.broker.groups.records import (
    ForgottenOffset,
    GroupDeleted,
    OffsetsCommitted,
    OffsetsDeleted,
)
from quipu.broker.groups.registry import CommittedOffset, GroupEntry, OffsetKey, offset_record
from quipu.broker.groups.states import State
from quipu.model.errors import Code
from quipu.runtime.log_limits import LimitedLog

if TYPE_CHECKING:  # it holds them
    from quipu.broker.groups.shard import GroupShard
    from quipu.controller.state import ClusterState


class Sender(NamedTuple):
    """The sender of a commit: a member of the group, or a tool with generation -1."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    client_host: str = ""


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
    records = [offset_record(key, kept) for key, kept in offsets.items()]
    count, size = len(offsets), offsets_size(offsets.values())
    usage.reserve(count, size)
    entry.commits_under_way += 1
    try:
        return await shard.keep(
            OffsetsCommitted(group_id=sender.group_id, offsets=records),
            lambda: registry.keep_offsets(entry, offsets))
    finally:
        entry.commits_under_way -= 1
        usage.reserve(-count, -size)


async def delete(shard: "GroupShard", group_id: str, keys: Sequence[OffsetKey]) -> Code:
    """Delete offsets of a group; those that do not exist are ignored."""
    entry = shard.registry.entries[group_id]
    found = [key for key in keys if key in entry.offsets]
    if not found:
        return Code.NONE
    return await shard.keep(
        _deleted(group_id, found), lambda: shard.registry.drop_offsets(entry, found))


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
    """Delete expired offsets, and then groups without members and offsets."""
    for group_id, entry in list(shard.registry.entries.items()):
        if entry.commits_under_way:
            continue  # the expired offsets may be committed again at this moment
        keys = entry.expired(now_ms, retention_ms, lambda topic: _name(cluster, topic))
        shard.registry.drop_offsets(entry, keys)
        if keys:
            limited.info("offsets expired", "group %r: %d offsets expired", group_id, len(keys))
        if entry.is_blank:
            shard.forget(entry)
            shard.append(GroupDeleted(group_id=group_id))
        elif keys:
            shard.append(_deleted(group_id, keys))


def find(shard: "GroupShard", group_id: str, key: OffsetKey) -> CommittedOffset | None:
    """The committed offset of a group for a partition, if there is one."""
    entry = shard.registry.entries.get(group_id)
    return entry.offsets.get(key) if entry is not None else None


def all_of(shard: "GroupShard", group_id: str) -> Mapping[OffsetKey, CommittedOffset]:
    """All committed offsets of a group."""
    entry: GroupEntry | None = shard.registry.entries.get(group_id)
    return entry.offsets if entry is not None else {}


def _deleted(group_id: str, keys: Sequence[OffsetKey]) -> OffsetsDeleted:
    partitions = [ForgottenOffset(topic_id=topic, partition=index) for topic, index in keys]
    return OffsetsDeleted(group_id=group_id, partitions=partitions)


def _name(cluster: "ClusterState", topic_id: UUID) -> str | None:
    topic = cluster.topics_by_id.get(topic_id)
    return topic.name if topic is not None else None
