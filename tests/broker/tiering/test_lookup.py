"""DescribeRemoteSegments, for readers: which segments hold some offsets, and where they are."""

from pathlib import Path

import pytest

from quipu.broker.tiering.lookup import TierLookup
from quipu.broker.tiering.roles import MetadataRoles
from quipu.model.errors import Code
from quipu.remote.metadata.interface import ManagerContext
from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import decode_pointer
from quipu.runtime.rng import SystemRng
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribedRemotePartition,
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
    RemoteSegmentsPartition,
    RemoteSegmentsTopic,
)
from tests.broker.tiering.test_tiering import COUNT, filled, log_of, objects, tiered_node
from tests.harness.here import NodeHere
from tests.looped import looped
from tests.remote.segments.builders import run_here


async def describe(
    node: NodeHere, start: int = 0, end: int = -1, *, topic: str = "t", partition: int = 0,
    epoch: int = -1, count: int = 1000,
) -> tuple[DescribeRemoteSegmentsResponse, DescribedRemotePartition]:
    wanted = RemoteSegmentsPartition(partition_index=partition, start_offset=start,
                                       end_offset=end, current_leader_epoch=epoch)
    async with node.connect() as peer:
        response = await peer.ask(DescribeRemoteSegmentsRequest(
            limit=count,
            topics=[RemoteSegmentsTopic(name=topic, partitions=[wanted])]), 0)
    assert isinstance(response, DescribeRemoteSegmentsResponse)
    return response, response.topics[0].partitions[0]


@looped
async def test_segments_up_to_the_local_start(tmp_path: Path) -> None:
    """I17: broker.tiering.U1: each is followed by the next, and each has its object."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        response, part = await describe(node)
        assert response.storage_url == (tmp_path / "data" / "remote").as_uri()
        assert response.topics[0].topic_id == log.topic_id
        assert (part.log_start_offset, part.local_start_offset, part.highest_tiered_offset) == (
            0, log.local_start_offset, log.highest_tiered_offset)
        assert part.is_complete
        assert (part.segment_count, part.remote_size) == (-1, -1)
        starts = [each.start_offset for each in part.segments]
        ends = [each.end_offset + 1 for each in part.segments]
        assert starts == [0, *ends[:-1]]
        assert ends[-1] >= log.local_start_offset
        stored = {path.name: path.stat().st_size for path in objects(tmp_path)}
        for each in part.segments:
            name = SegmentName(log.topic_id, 0, each.start_offset, each.segment_id)
            size = stored[name.key.rpartition("/")[2]]
            assert each.custom_metadata is not None
            assert decode_pointer(each.custom_metadata).object_size == size
            assert [epoch.start_offset for epoch in each.leader_epochs] == [each.start_offset]


@looped
async def test_pages_and_bounds(tmp_path: Path) -> None:
    """I17: no more than was asked for, from any offset on."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        _, whole = await describe(node)
        found, offset = [], 0
        while offset >= 0:
            _, page = await describe(node, offset, count=3)
            assert 1 <= len(page.segments) <= 3
            found += page.segments
            offset = -1 if page.is_complete else page.segments[-1].end_offset + 1
        assert found == whole.segments
        _, one = await describe(node, 20, 21, count=2**31 - 1)
        assert [each.start_offset <= 20 <= each.end_offset for each in one.segments] == [True]
        for start in (-5, log.local_start_offset, COUNT + 7, 2**62):
            _, none = await describe(node, start)
            assert (none.error_code, none.segments, none.is_complete) == (0, [], True)
        _, numbers = await describe(node, count=0)
        assert (numbers.segments, numbers.is_complete) == ([], False)
        _, negative = await describe(node, count=-1)
        assert negative.error_code == Code.INVALID_REQUEST


@looped
async def test_errors_are_per_partition(tmp_path: Path) -> None:
    """I17: unknown partitions, other leader epochs, and a node without a tier."""
    async with tiered_node(tmp_path) as node:
        await filled(node)
        epoch = log_of(node).leader_epoch
        for given, code in (({"topic": "x"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
                            ({"partition": 9}, Code.UNKNOWN_TOPIC_OR_PARTITION),
                            ({"epoch": epoch + 1}, Code.UNKNOWN_LEADER_EPOCH),
                            ({"epoch": epoch}, Code.NONE)):
            _, part = await describe(node, **given)  # type: ignore[arg-type]
            assert part.error_code == code
    async with NodeHere(tmp_path / "plain") as node:
        await node.create("t")
        response, part = await describe(node)
        assert (response.storage_url, part.error_code, part.segments) == (None, 0, [])


@pytest.mark.parametrize(("url", "shown"), [
    ("file:///a/b", "file:///a/b"),
    ("memory:", None),
    ("s3://b/p", "s3://b/p"),
    ("s3://b/p?credentials=/x/y&endpoint=http://h:1&region=eu&retries=2&ca=/z",
     "s3://b/p?endpoint=http://h:1&region=eu&retries=2"),
])
def test_the_url_names_no_files_of_the_node(url: str, shown: str | None) -> None:
    """I17: broker.tiering.U2: what it tells clients can be opened elsewhere."""
    metadata = StoredRemoteLogMetadata(ManagerContext(
        broker_id=1, config={"metadata.storage.url": "memory:"}, rng=SystemRng()))
    assert TierLookup(
        metadata, MetadataRoles(metadata), url, run_here).store_url == shown
