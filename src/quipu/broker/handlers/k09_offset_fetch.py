"""OffsetFetch — API key 9, versions 1-10.

Behaviour
    * responds with the offsets that groups have committed; -1 where there is none, also for groups
      and topics that do not exist
    * a null array of topics asks for everything that a group has committed
    * there are no transactions, so every offset is stable and require_stable changes nothing
Versions
    v2   all topics may be requested; an error code for the whole response
    v5   leader epochs
    v8   several groups in one request
    v10  topics by id instead of by name; an unknown one is UNKNOWN_TOPIC_ID
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.error_codes import code_of
from quipu.broker.groups import offsets
from quipu.broker.groups.kafka_records import CommittedOffset
from quipu.broker.groups.shard import GroupShard
from quipu.broker.serving.context import Broker, Context
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

MANY_GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
NOTHING: Final = -1


class Wanted(NamedTuple):
    """The requested partitions of one topic."""

    name: str
    topic_id: UUID
    topic: Topic | None
    partitions: Sequence[int]
    missing: Code = Code.NONE  # the error if there is no such topic


class FetchedOffset(NamedTuple):
    """The committed offset of one partition, or the error in its place."""

    partition: int
    offset: int = NOTHING
    leader_epoch: int = -1
    metadata: str = ""
    code: Code = Code.NONE


async def handle(
    broker: Broker, request: OffsetFetchRequest, context: Context
) -> OffsetFetchResponse:
    """Respond with the committed offsets of groups."""
    if context.api_version >= MANY_GROUPS_SINCE:
        response = OffsetFetchResponse(groups=context.array(OffsetFetchResponseGroup))
        for group in request.groups:
            await context.pause()
            response.groups.append(await _group(broker, group, context))
        return response
    shard, code = broker.groups.shards.shard_of(request.group_id)
    if request.topics is None:
        requested = await _everything(broker, shard, request.group_id, context)
    else:
        requested = [_by_name(broker, t.name, t.partition_indexes) for t in request.topics]
    topics = context.array(OffsetFetchResponseTopic)
    for wanted in requested:
        partitions = context.array(OffsetFetchResponsePartition)
        for found in _fetched(shard, request.group_id, wanted):
            await context.pause()
            partitions.append(OffsetFetchResponsePartition(
                partition_index=found.partition, committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch, metadata=found.metadata,
                error_code=found.code if found.code is not Code.NONE else code))
        topics.append(OffsetFetchResponseTopic(name=wanted.name, partitions=partitions))
    return OffsetFetchResponse(error_code=code, topics=topics)


def refuse(request: OffsetFetchRequest, error: QuipuError) -> OffsetFetchResponse:
    """Respond with the error for each group, or in the first version for each partition."""
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code_of(error))
                for group in request.groups],
        topics=[OffsetFetchResponseTopic(name=topic.name, partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=NOTHING, metadata="",
                error_code=code_of(error))
            for index in topic.partition_indexes]) for topic in request.topics or ()])


async def _group(
    broker: Broker, group: OffsetFetchRequestGroup, context: Context
) -> OffsetFetchResponseGroup:
    shard, code = broker.groups.shards.shard_of(group.group_id)
    if code is not Code.NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    if group.topics is None:
        requested = await _everything(broker, shard, group.group_id, context)
    elif context.api_version >= TOPIC_IDS_SINCE:
        requested = [_by_id(broker, t.topic_id, t.partition_indexes) for t in group.topics]
    else:
        requested = [_by_name(broker, t.name, t.partition_indexes) for t in group.topics]
    topics = context.array(OffsetFetchResponseTopics)
    for wanted in requested:
        partitions = context.array(OffsetFetchResponsePartitions)
        for found in _fetched(shard, group.group_id, wanted):
            await context.pause()
            partitions.append(OffsetFetchResponsePartitions(
                partition_index=found.partition, committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch, metadata=found.metadata,
                error_code=found.code))
        topics.append(OffsetFetchResponseTopics(
            name=wanted.name, topic_id=wanted.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _by_name(broker: Broker, name: str, partitions: Sequence[int]) -> Wanted:
    return Wanted(name, ZERO_UUID, broker.cluster.state.topics.get(name), partitions)


def _by_id(broker: Broker, topic_id: UUID, partitions: Sequence[int]) -> Wanted:
    topic = broker.cluster.state.topics_by_id.get(topic_id)
    return Wanted("", topic_id, topic, partitions, missing=Code.UNKNOWN_TOPIC_ID)


async def _everything(
    broker: Broker, shard: GroupShard | None, group_id: str, context: Context
) -> list[Wanted]:
    """All partitions for which a group has committed offsets, by topic."""
    partitions: dict[UUID, list[int]] = {}
    found = list(offsets.all_of(shard, group_id).items()) if shard is not None else []
    for (_, index), kept in found:
        await context.pause()
        partitions.setdefault(kept.topic_id, []).append(index)
    state = broker.cluster.state
    return [
        Wanted(topic.name, topic.topic_id, topic, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (topic := state.topics_by_id.get(topic_id)) is not None
    ]


def _fetched(shard: GroupShard | None, group_id: str, wanted: Wanted) -> Iterable[FetchedOffset]:
    for index in wanted.partitions:
        if wanted.topic is None:
            yield FetchedOffset(index, code=wanted.missing)
            continue
        kept: CommittedOffset | None = None
        if shard is not None:
            kept = offsets.find(shard, group_id, wanted.topic, index)
        if kept is None:
            yield FetchedOffset(index)
        else:
            yield FetchedOffset(index, kept.offset, kept.leader_epoch, kept.metadata)
