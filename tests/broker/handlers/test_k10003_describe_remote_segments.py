"""DescribeRemoteSegments: what the tier has of a partition, page by page."""

from pathlib import Path
from uuid import UUID

import pytest

from quipu.broker.handlers import k10003_describe_remote_segments
from quipu.broker.tiering.lookup import page_of
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import COPY_FINISHED, COPY_STARTED, RemoteLogSegmentState
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribedRemotePartition,
    DescribedRemoteSegment,
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)
from tests.broker.tiering.test_tiering import filled, tiered_node
from tests.harness.here import NodeHere, Peer
from tests.looped import looped


def request(
    topic: str = "t", partition: int = 0, *, limit: int = 1000, after: int = -1,
    after_id: UUID = ZERO_UUID,
) -> DescribeRemoteSegmentsRequest:
    return DescribeRemoteSegmentsRequest(limit=limit, in_any_state=True, topics=[
        RemoteSegmentsTopic(name=topic, partitions=[RemoteSegmentsPartition(
            partition_index=partition, start_offset=after, after_segment_id=after_id)])])


async def ask(
    peer: Peer, asked: DescribeRemoteSegmentsRequest
) -> tuple[DescribedRemotePartition, DescribeRemoteSegmentsResponse]:
    response = await peer.ask(asked, 0)
    assert isinstance(response, DescribeRemoteSegmentsResponse)
    return response.topics[0].partitions[0], response


@looped
async def test_the_leader_lists_segments_and_both_tiers(tmp_path: Path) -> None:
    """R13: offsets, sizes and segments; pages of three segments list the same as one page."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        await node.create("plain")
        async with node.connect() as peer:
            whole, response = await ask(peer, request())
            pages: list[DescribedRemoteSegment] = []
            last = None
            while last is None or not last.is_complete:
                at = pages[-1] if pages else None
                last, _ = await ask(peer, request(
                    limit=3, after=at.start_offset if at else -1,
                    after_id=at.segment_id if at else ZERO_UUID))
                pages += last.segments
            numbers, _ = await ask(peer, request(limit=0))
            plain, _ = await ask(peer, request("plain"))
    assert response.topics[0].topic_id == log.topic_id
    assert (whole.error_code, whole.is_tiered, whole.is_complete) == (0, True, True)
    assert response.storage_url == f"file://{tmp_path}/data/remote"
    assert (whole.log_start_offset, whole.log_end_offset) == (0, 200)
    assert whole.local_start_offset == log.local_start_offset
    assert whole.highest_tiered_offset >= whole.local_start_offset - 1
    assert {each.state for each in whole.segments} == {COPY_FINISHED}
    ends = [each.end_offset + 1 for each in whole.segments]
    assert [each.start_offset for each in whole.segments] == [0, *ends[:-1]]
    assert whole.remote_size == sum(each.size for each in whole.segments)
    assert pages == whole.segments
    assert numbers.segments == []
    assert (numbers.segment_count, numbers.is_complete) == (len(whole.segments), False)
    assert (plain.is_tiered, plain.segments, plain.is_complete) == (False, [], True)


@looped
async def test_errors_say_what_to_do(tmp_path: Path) -> None:
    """R15: an unknown partition, a wrong limit, a broker without a tier."""
    async with tiered_node(tmp_path / "tiered") as node, node.connect() as peer:
        await node.create("t")
        for wrong, code in (
                (request("none"), Code.UNKNOWN_TOPIC_OR_PARTITION),
                (request("x" * 30_000), Code.UNKNOWN_TOPIC_OR_PARTITION),
                (request(""), Code.UNKNOWN_TOPIC_OR_PARTITION),
                (request(partition=7), Code.UNKNOWN_TOPIC_OR_PARTITION),
                (request(partition=-1), Code.UNKNOWN_TOPIC_OR_PARTITION),
                (request(limit=-1), Code.INVALID_REQUEST)):
            assert (await ask(peer, wrong))[0].error_code == code
        nothing = await peer.ask(DescribeRemoteSegmentsRequest(limit=-2**31), 0)
        assert isinstance(nothing, DescribeRemoteSegmentsResponse)
        assert nothing.topics == []  # a limit without a partition is nobody's error
    async with NodeHere(tmp_path / "plain") as node, node.connect() as peer:
        await node.create("t")
        refused, _ = await ask(peer, request())
    assert refused.error_code == Code.INVALID_CONFIG
    assert refused.error_message is not None
    assert "remote.log.storage.system.enable=true" in refused.error_message


@looped
async def test_hostile_cursors_and_repeated_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: any cursor is a place in the order; a response has a bounded number of segments."""
    monkeypatch.setattr(k10003_describe_remote_segments, "RESPONSE_SEGMENTS_MAX", 20)
    last = UUID(int=2**128 - 1)
    async with tiered_node(tmp_path) as node, node.connect() as peer:
        await filled(node)
        whole, _ = await ask(peer, request())
        count = len(whole.segments)
        for after, after_id, left in (
                (-2**63, last, count), (-1, last, count), (0, ZERO_UUID, count),
                (0, last, count - 1), (2**63 - 1, ZERO_UUID, 0), (2**63 - 1, last, 0)):
            page, _ = await ask(peer, request(
                after=after, after_id=after_id, limit=2**31 - 1))
            assert (page.error_code, len(page.segments), page.is_complete) == (0, left, True)
            assert page.segment_count == count
        repeated = request()
        (topic,) = repeated.topics
        topic.partitions = [RemoteSegmentsPartition(partition_index=0, start_offset=-number)
                            for number in range(1, 51)]
        repeated.topics.append(RemoteSegmentsTopic(
            name="none", partitions=[RemoteSegmentsPartition(partition_index=0)]))
        _, response = await ask(peer, repeated)
        (some, none) = response.topics
    assert [len(each.segments) for each in some.partitions[:1]] == [count]
    assert sum(len(each.segments) for each in some.partitions) <= 20 + 50
    assert all(each.segments for each in some.partitions)
    assert not some.partitions[-1].is_complete
    assert none.partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_page_is_in_order_and_bounded() -> None:
    """Segments with one start offset are told apart by their ids."""
    partition = TopicIdPartition(UUID(int=1), 0, "t")

    def segment(start: int, number: int, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadata:
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, UUID(int=number)), start_offset=start,
            end_offset=start, max_timestamp_ms=0, broker_id=1, event_timestamp_ms=0,
            segment_size_bytes=10, segment_leader_epochs={0: start}, state=state)

    segments = [segment(5, 1, COPY_FINISHED), segment(0, 3, COPY_STARTED),
                segment(0, 2, COPY_FINISHED)]
    first = page_of(segments, (-1, ZERO_UUID), 2)
    assert [each.order for each in first.segments] == [(0, UUID(int=2)), (0, UUID(int=3))]
    assert first[1:] == (False, 3, 20)
    second = page_of(segments, first.segments[-1].order, 2)
    assert (second.segments, second.is_complete) == ([segments[0]], True)
