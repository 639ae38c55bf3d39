"""DescribeDisklessRuns: any node says in which objects the batches of a diskless partition are."""

from pathlib import Path
from typing import Any

from quipu.model.errors import Code
from quipu.runtime.objects.store import ByteRange
from quipu.wire.messages.k10004_describe_diskless_runs import (
    DescribeDisklessRunsRequest,
    DisklessRunsPartition,
    DisklessRunsTopic,
)
from quipu.wire.record_batch import decode_records, parse_header
from tests.broker.diskless.parts import create, diskless_node, put, topic_uuid
from tests.harness.here import NodeHere, Peer
from tests.harness.s3_server import S3Server
from tests.looped import looped

COUNT = 10


async def describe(
    peer: Peer, *wanted: tuple[str, int, int, int], limit: int = 1000, max_bytes: int = 1 << 30
) -> Any:
    """Ask for (topic, partition, start, end)."""
    return await peer.ask(DescribeDisklessRunsRequest(limit=limit, max_bytes=max_bytes, topics=[
        DisklessRunsTopic(name=topic, partitions=[DisklessRunsPartition(
            partition_index=partition, start_offset=start, end_offset=end)])
        for topic, partition, start, end in wanted]), 0)


async def filled(node: NodeHere, peer: Peer) -> bytes:
    topic_id = await create(node)
    for number in range(COUNT):
        await put(peer, "t", b"%d" % number)
    return topic_id


@looped
async def test_the_runs_of_a_range(tmp_path: Path) -> None:
    """I17: they hold the offsets asked for, in order, and their bytes are where it says."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        topic_id = await filled(node, peer)
        response = await describe(peer, ("t", 0, 3, 7))
        (topic,) = response.topics
        (part,) = topic.partitions
        assert topic.topic_id == topic_uuid(topic_id)
        assert (part.error_code, part.is_diskless) == (0, True)
        assert (part.log_start_offset, part.diskless_start_offset, part.high_watermark) == (
            0, 0, COUNT)
        assert part.runs[0].base_offset <= 3 < part.runs[0].end_offset
        assert part.runs[-1].base_offset < 7 <= part.runs[-1].end_offset
        assert node.node.diskless is not None
        found = []
        for run in part.runs:
            (data,) = await node.node.diskless.store.get_ranges(
                run.key, [ByteRange(run.position, run.position + run.size)])
            view = memoryview(data)
            while view:
                size = parse_header(view).size
                found += [record.value for record in decode_records(view[:size], size_max=1000)]
                view = view[size:]
        first = part.runs[0].base_offset
        assert found == [b"%d" % number for number in range(first, first + len(found))]
        assert response.storage_url == (tmp_path / "data" / "diskless").as_uri()


@looped
async def test_limits_and_offsets_out_of_range(tmp_path: Path) -> None:
    """I17: a client goes on after the last run; there is none at the end, or beyond it."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await filled(node, peer)
        for options in ({"limit": 1}, {"max_bytes": 1}, {"limit": -5}):
            (part,) = (await describe(peer, ("t", 0, 0, COUNT), **options)).topics[0].partitions
            assert (part.error_code, len(part.runs)) == (0, 1)
        for start in (COUNT, COUNT + 100):
            (part,) = (await describe(peer, ("t", 0, start, start + 5))).topics[0].partitions
            assert (part.error_code, part.runs, part.high_watermark) == (0, [], COUNT)


@looped
async def test_errors_are_of_one_partition(tmp_path: Path) -> None:
    """I17: one that does not exist, or is not diskless, does not fail the others."""
    async with diskless_node(tmp_path) as node, node.connect() as peer:
        await filled(node, peer)
        await node.create("classic", 1)
        response = await describe(
            peer, ("nothing", 0, 0, 5), ("t", 9, 0, 5), ("classic", 0, 0, 5), ("t", 0, 0, 5))
        absent, diskless, classic = (topic.partitions for topic in response.topics)
        assert [part.error_code for part in (absent[0], diskless[0])] == [
            Code.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert (diskless[1].error_code, bool(diskless[1].runs)) == (0, True)
        assert (classic[0].error_code, classic[0].is_diskless, classic[0].runs) == (0, False, [])
        (part,) = (await describe(peer, ("t", 0, 5, 2))).topics[0].partitions
        assert part.error_code == Code.INVALID_REQUEST


@looped
async def test_no_file_of_credentials_is_told(
    tmp_path: Path, s3_server: S3Server
) -> None:
    """I17: clients get the URL of the store, and nothing of how the node opens it."""
    url = s3_server.url(s3_server.bucket())
    async with diskless_node(tmp_path, diskless_storage_url=url) as node, node.connect() as peer:
        await filled(node, peer)
        assert (await describe(peer, ("t", 0, 0, 1))).storage_url == url
