"""OffsetCommit, OffsetFetch and OffsetDelete as clients of each version see them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from quipu.broker.handlers import k08_offset_commit, k09_offset_fetch, k47_offset_delete
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from quipu.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.clusters import versions
from tests.broker.groups.brokers import Client, GroupBroker, a_group_broker


def run(test: Callable[[GroupBroker], Awaitable[None]]) -> None:
    async def with_broker() -> None:
        broker = await a_group_broker("t", "u")
        await test(broker)
        await broker.groups.stop()

    asyncio.run(with_broker())


def topic_id(broker: GroupBroker, name: str) -> UUID:
    return broker.cluster.state.topics[name].topic_id


async def commit(
    broker: GroupBroker, version: int, *, topic: str = "t", partition: int = 0, **fields: Any
) -> int:
    known = broker.cluster.state.topics.get(topic)
    response = await broker.ask(k08_offset_commit, OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(
            name=topic, topic_id=known.topic_id if known is not None else UUID(int=99),
            partitions=[OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=5, committed_leader_epoch=2,
                committed_metadata="note")])], **fields), version)
    return int(response.topics[0].partitions[0].error_code)


async def fetch(broker: GroupBroker, version: int, topics: list[str] | None) -> list[Any]:
    """Topics of the response, in any version."""
    state = broker.cluster.state
    if version < 8:
        asked = None if topics is None else [
            OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in topics]
        response = await broker.ask(
            k09_offset_fetch, OffsetFetchRequest(group_id="g", topics=asked), version)
        assert response.error_code == Code.NONE
        return list(response.topics)
    several = None if topics is None else [
        OffsetFetchRequestTopics(
            name=name, partition_indexes=[0, 1],
            topic_id=state.topics[name].topic_id if name in state.topics else UUID(int=99))
        for name in topics]
    response = await broker.ask(k09_offset_fetch, OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=several)]), version)
    assert response.groups[0].error_code == Code.NONE
    return list(response.groups[0].topics)


@pytest.mark.parametrize("version", versions(OffsetCommitRequest))
def test_what_is_committed_is_told(version: int) -> None:
    """K3: offset, leader epoch and metadata, in every version, and what was not committed is -1."""
    async def test(broker: GroupBroker) -> None:
        assert await commit(broker, version) == Code.NONE
        (topic,) = await fetch(broker, 10 if version == 10 else 8, ["t"])
        first, second = topic.partitions
        assert (first.committed_offset, first.metadata, first.error_code) == (5, "note", 0)
        assert first.committed_leader_epoch == (2 if version >= 6 else -1)
        assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)

    run(test)


@pytest.mark.parametrize("version", versions(OffsetFetchRequest))
def test_offsets_are_told_in_every_version(version: int) -> None:
    """K3: of topics that are named, and of all of them."""
    async def test(broker: GroupBroker) -> None:
        await commit(broker, 9, topic="u", partition=1)
        (topic,) = await fetch(broker, version, ["u"])
        assert [p.committed_offset for p in topic.partitions] == [-1, 5]
        if version >= 2:
            (everything,) = await fetch(broker, version, None)
            assert [p.partition_index for p in everything.partitions] == [1]
            if version < 10:
                assert everything.name == "u"
            else:
                assert everything.topic_id == topic_id(broker, "u")

    run(test)


def test_topics_that_do_not_exist() -> None:
    """K3: nothing is kept for them; by id they are UNKNOWN_TOPIC_ID, by name just not committed."""
    async def test(broker: GroupBroker) -> None:
        assert await commit(broker, 9, topic="no") == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(broker, 10, topic="no") == Code.UNKNOWN_TOPIC_ID
        assert await commit(broker, 9, partition=2) == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(broker, 10, partition=-1) == Code.UNKNOWN_TOPIC_OR_PARTITION
        (topic,) = await fetch(broker, 9, ["no"])
        assert [(p.committed_offset, p.error_code) for p in topic.partitions] == [(-1, 0)] * 2
        (topic,) = await fetch(broker, 10, ["no"])
        assert {p.error_code for p in topic.partitions} == {Code.UNKNOWN_TOPIC_ID}
        assert broker.groups.all() == []

    run(test)


def test_a_wrong_partition_does_not_fail_the_others() -> None:
    """K3: each partition has its own code."""
    async def test(broker: GroupBroker) -> None:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=9, committed_metadata="x" * size)
            for index, size in [(0, 4096), (1, 4097), (7, 0)]]
        response = await broker.ask(k08_offset_commit, OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]))
        assert [p.error_code for p in response.topics[0].partitions] == [
            Code.NONE, Code.OFFSET_METADATA_TOO_LARGE, Code.UNKNOWN_TOPIC_OR_PARTITION]
        (topic,) = await fetch(broker, 8, ["t"])
        assert [p.committed_offset for p in topic.partitions] == [9, -1]

    run(test)


def test_who_may_not_commit_is_told_why() -> None:
    """K3: no such group, no such member, another generation."""
    async def test(broker: GroupBroker) -> None:
        member = {"member_id": "m", "generation_id_or_member_epoch": 3}
        assert await commit(broker, 8, **member) == Code.ILLEGAL_GENERATION
        assert await commit(broker, 9, **member) == Code.GROUP_ID_NOT_FOUND
        client = Client(broker)
        await client.enter()
        assert await commit(broker, 9) == Code.UNKNOWN_MEMBER_ID  # from outside
        assert await commit(broker, 9, **member) == Code.UNKNOWN_MEMBER_ID
        client.generation += 1
        assert await client.commit(1) == Code.ILLEGAL_GENERATION
        client.generation -= 1
        assert await client.commit(1) == Code.NONE

    run(test)


def test_a_retention_time_of_any_size_is_kept() -> None:
    """K8: v2-4 may ask for longer than time lasts."""
    async def test(broker: GroupBroker) -> None:
        assert await commit(broker, 3, retention_time=(1 << 63) - 1) == Code.NONE
        broker.shard.expire_offsets()
        assert await Client(broker).committed() == 5
        assert await commit(broker, 3, retention_time=10) == Code.NONE
        broker.clock.advance_ms(10)
        broker.shard.expire_offsets()
        assert await Client(broker).committed() == -1

    run(test)


def test_offsets_of_a_group_that_was_left_expire() -> None:
    """K3: after offsets.retention.minutes; then nothing is known of the group, even in the log."""
    async def test(broker: GroupBroker) -> None:
        client = Client(broker)
        await client.enter()
        await client.commit(5)
        week_ms = broker.settings.offsets_retention_minutes * 60_000
        broker.clock.advance_ms(week_ms)
        broker.shard.expire_offsets()
        assert await client.committed() == 5
        assert await client.leave() == Code.NONE
        broker.clock.advance_ms(week_ms - 1)
        broker.shard.expire_offsets()
        assert await client.committed() == 5
        broker.clock.advance_ms(1)
        broker.shard.expire_offsets()
        assert broker.groups.all() == []
        await broker.shard.core.drained()
        await broker.restart()
        assert broker.groups.all() == []

    run(test)


def test_a_topic_that_comes_back_has_no_offsets() -> None:
    """K3: deletion takes the offsets along, also if the node dies right after it."""
    from quipu.controller.topic_requests import NewTopic

    async def test(broker: GroupBroker) -> None:
        await commit(broker, 9, topic="t")
        await commit(broker, 9, topic="u")
        await broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        await broker.cluster.controller.create_topics([NewTopic("t", 2)])
        assert await Client(broker).committed("t") == -1
        await broker.restart()
        assert await Client(broker).committed("t") == -1
        assert await Client(broker).committed("u") == 5

    run(test)


async def delete(broker: GroupBroker, group_id: str, name: str, partition: int = 0) -> Any:
    return await broker.ask(k47_offset_delete, OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=name, partitions=[
            OffsetDeleteRequestPartition(partition_index=partition)])]))


def test_offsets_are_deleted_unless_they_are_read() -> None:
    """K3: GROUP_SUBSCRIBED_TO_TOPIC while a member reads the topic."""
    async def test(broker: GroupBroker) -> None:
        client = Client(broker, topics=["t"])
        await client.enter()
        await client.commit(5)
        await client.commit(6, topic="u")
        response = await delete(broker, "g", "t")
        assert response.topics[0].partitions[0].error_code == Code.GROUP_SUBSCRIBED_TO_TOPIC
        response = await delete(broker, "g", "u")
        assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
        response = await delete(broker, "g", "u", 9)
        assert response.topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert [await client.committed("t"), await client.committed("u")] == [5, -1]
        await client.leave()
        await delete(broker, "g", "t")
        assert await client.committed("t") == -1
        await broker.restart()
        assert await client.committed("t") == -1
        assert (await delete(broker, "none", "t")).error_code == Code.GROUP_ID_NOT_FOUND

    run(test)
