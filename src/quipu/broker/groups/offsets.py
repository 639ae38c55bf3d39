"""Committed offsets: who may commit them, how they are read, when they go.

A commit is checked against its group, kept, and only then seen by who reads (E3): what a
consumer is told to go on from survives a crash.

Not here: topics by name and the limits on metadata (handlers/k08_offset_commit).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from quipu.broker.groups.group import CONSUMER
from quipu.broker.groups.limits import GROUP_ID_SIZE_MAX, offsets_size
from quipu.broker.groups.records import (
    GroupDeleted,
    OffsetsCommitted,
    OffsetsDeleted,
    PartitionRecord,
    encode_record,
)
from quipu.broker.groups.registry import Committed, Entry, OffsetKey, offset_record
from quipu.broker.groups.states import State
from quipu.model.errors import Code
from quipu.runtime.log_limits import LimitedLog

if TYPE_CHECKING:  # it holds them
    from quipu.broker.groups.shard import Shard
    from quipu.controller.state import ClusterState


class Sender(NamedTuple):
    """Who commits: a member of the group, or somebody outside with generation -1."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    client_host: str = ""


async def commit(
    shard: "Shard", sender: Sender, offsets: Mapping[OffsetKey, Committed], *, no_group: Code
) -> Code:
    """Keep `offsets`; `no_group` is the answer to a member of a group that does not exist."""
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


async def delete(shard: "Shard", group_id: str, keys: Sequence[OffsetKey]) -> Code:
    """Forget offsets of a group; those that are not there are forgotten already."""
    entry = shard.registry.entries[group_id]
    found = [key for key in keys if key in entry.offsets]
    if not found:
        return Code.NONE
    return await shard.keep(
        _deleted(group_id, found), lambda: shard.registry.drop_offsets(entry, found))


def check_delete(shard: "Shard", group_id: str) -> Code:
    """Whether offsets of this group may be deleted at all."""
    group = shard.find(group_id)
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        return Code.NON_EMPTY_GROUP
    return Code.NONE


def expire(
    shard: "Shard", cluster: "ClusterState", limited: LimitedLog, *, now_ms: int, retention_ms: int
) -> None:
    """Forget offsets that are past their time, and groups that nothing is known of any more."""
    for group_id, entry in list(shard.registry.entries.items()):
        if entry.commits_under_way:
            continue  # what would be deleted may be what is being committed
        keys = entry.expired(now_ms, retention_ms, lambda topic: _name(cluster, topic))
        shard.registry.drop_offsets(entry, keys)
        if keys:
            limited.info("offsets expired", "group %r: %d offsets expired", group_id, len(keys))
        if entry.is_blank:
            shard.forget(entry)
            shard.log.append([encode_record(GroupDeleted(group_id=group_id))], _ignore)
        elif keys:
            shard.log.append([encode_record(_deleted(group_id, keys))], _ignore)


def find(shard: "Shard", group_id: str, key: OffsetKey) -> Committed | None:
    """How far a group has read a partition, if it ever said."""
    entry = shard.registry.entries.get(group_id)
    return entry.offsets.get(key) if entry is not None else None


def all_of(shard: "Shard", group_id: str) -> Mapping[OffsetKey, Committed]:
    """Everything that a group has committed."""
    entry: Entry | None = shard.registry.entries.get(group_id)
    return entry.offsets if entry is not None else {}


def _deleted(group_id: str, keys: Sequence[OffsetKey]) -> OffsetsDeleted:
    partitions = [PartitionRecord(topic_id=topic, partition=index) for topic, index in keys]
    return OffsetsDeleted(group_id=group_id, partitions=partitions)


def _name(cluster: "ClusterState", topic_id: UUID) -> str | None:
    topic = cluster.topics_by_id.get(topic_id)
    return topic.name if topic is not None else None


def _ignore(error: Exception | None) -> None:
    """If it was not written it expires again after the next start; the log has told of it."""
