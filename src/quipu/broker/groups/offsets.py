"""Committed offsets: who may commit them, how they are read, when they go.

A commit is checked against its group, kept, and only then seen by who reads (E3): what a
consumer is told to go on from survives a crash.

Not here: topics by name and the limits on metadata (handlers/k08_offset_commit).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from quipu.broker.groups.group import CONSUMER
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

if TYPE_CHECKING:  # it holds them
    from quipu.broker.groups.shard import Shard
    from quipu.controller.state import ClusterState

_log = logging.getLogger(__name__)


class Sender(NamedTuple):
    """Who commits: a member of the group, or somebody outside with generation -1."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


async def commit(
    shard: "Shard", sender: Sender, offsets: Mapping[OffsetKey, Committed], *, no_group: Code
) -> Code:
    """Keep `offsets`; `no_group` is the answer to a member of a group that does not exist."""
    entry = shard.registry.entries.get(sender.group_id)
    if entry is None and sender.generation >= 0:
        return no_group
    if entry is None and offsets:
        entry = shard.create(sender.group_id)
        if entry is None:
            return Code.POLICY_VIOLATION
    if entry is None:
        return Code.NONE
    code = entry.group.check_commit(
        sender.member_id, sender.instance_id, sender.generation, shard.now())
    if code is not Code.NONE or not offsets:
        return code
    if not shard.registry.has_room(entry, offsets):
        _log.warning("group %r: offsets refused: its partition keeps as many as it can",
                     sender.group_id[:100])
        return Code.INVALID_COMMIT_OFFSET_SIZE
    records = [offset_record(key, kept) for key, kept in offsets.items()]
    entry.commits_under_way += 1
    try:
        return await shard.keep(
            OffsetsCommitted(group_id=sender.group_id, offsets=records),
            lambda: entry.offsets.update(offsets))
    finally:
        entry.commits_under_way -= 1


async def delete(shard: "Shard", group_id: str, keys: Sequence[OffsetKey]) -> Code:
    """Forget offsets of a group; those that are not there are forgotten already."""
    kept = shard.registry.entries[group_id].offsets
    found = [key for key in keys if key in kept]
    if not found:
        return Code.NONE

    def forget() -> None:
        for key in found:
            kept.pop(key, None)

    return await shard.keep(_deleted(group_id, found), forget)


def check_delete(shard: "Shard", group_id: str) -> Code:
    """Whether offsets of this group may be deleted at all."""
    group = shard.find(group_id)
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        return Code.NON_EMPTY_GROUP
    return Code.NONE


def expire(shard: "Shard", cluster: "ClusterState", *, now_ms: int, retention_ms: int) -> None:
    """Forget offsets that are past their time, and groups that nothing is known of any more."""
    for group_id, entry in list(shard.registry.entries.items()):
        if entry.commits_under_way:
            continue  # what would be deleted may be what is being committed
        keys = entry.expired(now_ms, retention_ms, lambda topic: _name(cluster, topic))
        for key in keys:
            del entry.offsets[key]
        if keys:
            _log.info("group %r: %d offsets expired", group_id, len(keys))
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
