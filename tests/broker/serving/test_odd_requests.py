"""Requests that real clients seldom send: answered as Apache Kafka 4.2 answers them.

Each answer is what a real one gave; tests/differential compares many more of them.
"""

import time
from pathlib import Path
from uuid import UUID

import pytest

from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quipu.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from quipu.wire.messages.k14_sync_group import SyncGroupRequest
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest
from quipu.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quipu.wire.messages.k47_offset_delete import OffsetDeleteRequest
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.looped import looped

EPOCH_MAX = 2**31 - 1
WAIT_MS = 20_000


async def first_epoch(peer: Peer) -> int:
    """The leader epoch of partition 0 of topic t."""
    shown = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 7)
    epoch: int = shown.topics[0].partitions[0].leader_epoch
    return epoch


@pytest.mark.parametrize("epoch", [-1, 0])
@looped
async def test_a_fetch_of_no_partitions_is_answered_at_once(tmp_path: Path, epoch: int) -> None:
    """K5: the fetch that closes a session does not wait max_wait, so consumers close quickly."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        begun = time.monotonic()
        response = await peer.ask(FetchRequest(
            max_wait=WAIT_MS, min_bytes=1, session_id=0, session_epoch=epoch), 12)
        assert (response.error_code, response.responses) == (0, [])
        assert time.monotonic() - begun < WAIT_MS / 2000


def fetch(offset: int, last_epoch: int) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=last_epoch,
        partition_max_bytes=1000)])])


@looped
async def test_an_epoch_above_every_known_one_is_out_of_range(tmp_path: Path) -> None:
    """K5: the consumer has read from a log that never was; bounds are not given with the error."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await peer.ask(produce("t", batch_of(b"a")), 9)
        known = await first_epoch(peer)
        (topic,) = (await peer.ask(fetch(0, EPOCH_MAX), 12)).responses
        (part,) = topic.partitions
        assert part.error_code == Code.OFFSET_OUT_OF_RANGE
        assert (part.high_watermark, part.log_start_offset) == (-1, -1)
        assert part.diverging_epoch.epoch == -1
        (topic,) = (await peer.ask(fetch(0, known), 12)).responses
        assert topic.partitions[0].error_code == Code.NONE
        assert len(topic.partitions[0].records) > 0


def list_offsets(*wanted: tuple[int, int, int]) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, timestamp, epoch in wanted])])


@looped
async def test_offsets_of_a_partition_that_is_named_twice_are_not_looked_up(tmp_path: Path) -> None:
    """K5: INVALID_REQUEST, once; an unknown time stamp is refused before an unknown partition."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        response = await peer.ask(list_offsets((0, -1, -1), (1, -2, -1), (0, -1, -1)), 7)
        assert [(part.partition_index, part.error_code)
                for part in response.topics[0].partitions] == [
            (0, Code.INVALID_REQUEST), (1, Code.NONE)]
        response = await peer.ask(list_offsets((9, -4, -1), (1, -1, -2)), 7)
        assert [part.error_code for part in response.topics[0].partitions] == [
            Code.UNSUPPORTED_VERSION, Code.FENCED_LEADER_EPOCH]


@looped
async def test_offsets_come_with_the_epoch_of_their_records(tmp_path: Path) -> None:
    """K5: earliest, latest and by time; -1 where no record is found."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await peer.ask(produce("t", batch_of(b"a", timestamp=1000)), 9)
        epoch = await first_epoch(peer)
        for timestamp, expected in (
                (-1, (1, epoch)), (-2, (0, epoch)), (-3, (0, epoch)), (500, (0, epoch)),
                (5000, (-1, -1))):
            response = await peer.ask(list_offsets((0, timestamp, -1)), 7)
            (part,) = response.topics[0].partitions
            assert (part.offset, part.leader_epoch) == expected, timestamp


@looped
async def test_metadata_by_id_leaves_names_out(tmp_path: Path) -> None:
    """K5: a request that names topics both ways asks for the ids; the same topic comes once."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        topic_id = UUID(bytes=await node.create("t"))
        await node.create("other")
        response = await peer.ask(MetadataRequest(topics=[
            MetadataRequestTopic(name="other"), MetadataRequestTopic(topic_id=topic_id, name=None),
            MetadataRequestTopic(topic_id=topic_id, name=None)]), 12)
        assert [topic.name for topic in response.topics] == ["t"]
        response = await peer.ask(MetadataRequest(topics=[
            MetadataRequestTopic(name="other"), MetadataRequestTopic(name="other")]), 12)
        assert [topic.name for topic in response.topics] == ["other"]
        assert (await peer.ask(MetadataRequest(topics=[]), 12)).topics == []
        assert len((await peer.ask(MetadataRequest(topics=[]), 0)).topics) == 2


@looped
async def test_epochs_before_the_first_and_after_the_last(tmp_path: Path) -> None:
    """K5: before the first epoch a log ends where it begins; a later one than any is not known."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await peer.ask(produce("t", batch_of(b"a")), 9)
        response = await peer.ask(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(
            topic="t", partitions=[
                OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
                for epoch in (-2, EPOCH_MAX, -1)])]), 4)
        assert [(part.leader_epoch, part.end_offset)
                for part in response.topics[0].partitions] == [(-2, 0), (-1, -1), (-1, -1)]


@looped
async def test_what_is_named_twice_is_answered_twice(tmp_path: Path) -> None:
    """K5, K8: members and coordinators; but what is costly to describe is described once."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await peer.ask(FindCoordinatorRequest(key="g"), 3)
        described = await peer.ask(DescribeGroupsRequest(groups=["g", "g"]), 5)
        assert [group.group_id for group in described.groups] == ["g"]
        fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=[
            OffsetFetchRequestTopic(name="t", partition_indexes=[0, 0])]), 5)
        assert len(fetched.topics[0].partitions) == 1
        left = await peer.ask(LeaveGroupRequest(group_id="g", members=[
            MemberIdentity(member_id="m"), MemberIdentity(member_id="m")]), 4)
        assert [member.error_code for member in left.members] == [Code.UNKNOWN_MEMBER_ID] * 2
        found = await peer.ask(FindCoordinatorRequest(coordinator_keys=["g", "g"]), 4)
        assert len(found.coordinators) == 2


@looped
async def test_the_group_of_a_commit_comes_before_its_metadata(tmp_path: Path) -> None:
    """K5: and after topics that do not exist; without a partition it is not looked at."""
    def commit(*topics: tuple[str, str | None]) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=3, member_id="nobody", topics=[
                OffsetCommitRequestTopic(name=name, partitions=[] if note is None else [
                    OffsetCommitRequestPartition(partition_index=0, committed_metadata=note)])
                for name, note in topics])

    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await peer.ask(FindCoordinatorRequest(key="g"), 3)
        response = await peer.ask(commit(("t", "x" * 5000), ("no-such-topic", "")), 9)
        assert [topic.partitions[0].error_code for topic in response.topics] == [
            Code.GROUP_ID_NOT_FOUND, Code.UNKNOWN_TOPIC_OR_PARTITION]
        response = await peer.ask(commit(("t", None), ("no-such-topic", None)), 9)
        assert [topic.name for topic in response.topics] == ["no-such-topic"]


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None)])
@looped
async def test_a_sync_needs_its_protocol(
    tmp_path: Path, kind: str | None, name: str | None
) -> None:
    """K5: from v5 on, where it has fields for it."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await peer.ask(FindCoordinatorRequest(key="g"), 3)
        request = SyncGroupRequest(group_id="g", member_id="m", protocol_type=kind,
                                   protocol_name=name)
        assert (await peer.ask(request, 5)).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        assert (await peer.ask(request, 4)).error_code == Code.UNKNOWN_MEMBER_ID


@looped
async def test_a_group_without_a_name_is_no_group(tmp_path: Path) -> None:
    """K5: INVALID_GROUP_ID, also if no member is named."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await peer.ask(FindCoordinatorRequest(key="g"), 3)
        assert (await peer.ask(OffsetDeleteRequest(group_id=""), 0)).error_code == (
            Code.INVALID_GROUP_ID)
        assert (await peer.ask(LeaveGroupRequest(group_id=""), 4)).error_code == (
            Code.INVALID_GROUP_ID)


@looped
async def test_a_time_limit_of_0_is_over(tmp_path: Path) -> None:
    """K5: nothing is done; a request that names nothing succeeds."""
    def create(*names: str) -> CreateTopicsRequest:
        return CreateTopicsRequest(timeout=0, topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names])

    async with NodeHere(tmp_path) as node, node.connect() as peer:
        (topic,) = (await peer.ask(create("t"), 7)).topics
        assert (topic.error_code, topic.topic_id) == (Code.REQUEST_TIMED_OUT, ZERO_UUID)
        assert "t" not in node.node.broker.cluster.state.topics
        assert (await peer.ask(create(), 7)).topics == []


@looped
async def test_who_wants_transactions_is_told_that_there_are_none(tmp_path: Path) -> None:
    """K5: in words; by codes at which clients of the version stop, and no client retries."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        request = FindCoordinatorRequest(key="mine", key_type=1, coordinator_keys=["mine"])
        old, new = await peer.ask(request, 2), await peer.ask(request, 6)
        assert old.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert new.coordinators[0].error_code == Code.UNSUPPORTED_VERSION
        for message in (old.error_message, new.coordinators[0].error_message):
            assert "does not serve transactions" in message
            assert "enable.idempotence" in message
        init = InitProducerIdRequest(transactional_id="mine", transaction_timeout=1000)
        assert (await peer.ask(init, 4)).error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await peer.ask(init, 5)).error_code == Code.UNSUPPORTED_VERSION
