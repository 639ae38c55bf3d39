"""Old records are read from objects, the others through brokers, and each of them once."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from quipu.client.errors import DataLost, TopicRecreated
from quipu.client.fetch import FetchedBatches, OnLoss, fetch, raise_loss
from quipu.client.ranges import Range
from quipu.client.remote_log import RemoteLogPart, SegmentPlace
from quipu.client.settings import client_settings
from quipu.client.shared import close_shared, shared
from quipu.model.errors import MalformedBytes
from quipu.model.ids import ZERO_UUID, Offset
from quipu.pipeline.reading import direct, loop, objects
from quipu.pipeline.reading.direct import DirectReadFailed, spans_of
from quipu.pipeline.reading.loop import read_ranges
from quipu.pipeline.records.columns import WantedColumns
from quipu.pipeline.source import DirectRead
from quipu.remote.segments.footer import SegmentFooter
from quipu.remote.segments.pointer import SegmentPointer
from quipu.remote.segments.reader import SegmentReader
from tests.broker.tiering import test_tiering
from tests.broker.tiering.test_tiering import (
    COUNT,
    TIERED,
    filled,
    log_of,
    tiered_node,
    until,
    values,
    write,
)
from tests.harness.here import NodeHere
from tests.harness.s3_server import S3Server
from tests.looped import looped

PER_SEGMENT = 14  # records

Found = list[tuple[int, bytes]]


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process that has learned nothing yet."""
    monkeypatch.setattr(direct, "_memory", direct._Memory())


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Range]:
    """What is read through brokers."""
    asked: list[Range] = []

    def watched(*given: object, **named: OnLoss) -> Iterator[FetchedBatches]:
        ranges = list(given[1])  # type: ignore[call-overload]
        asked.extend(ranges)
        return fetch(given[0], ranges, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "fetch", watched)
    monkeypatch.setattr(direct, "fetch", watched)
    return asked


async def read(
    node: NodeHere, first: int = 0, end: int = COUNT, mode: DirectRead = DirectRead.ALWAYS,
    on_loss: OnLoss = raise_loss, *, topic_id: UUID | None = None,
) -> Found:
    """Offsets and values of a range, as a task reads them, in a thread of its own."""
    settings = client_settings({"bootstrap.servers": f"{node.address.host}:{node.address.port}"})

    def work() -> Found:
        try:
            wanted = Range("t", 0, first, end, topic_id or shared(settings).topic("t").topic_id)
            return [
                pair for each in read_ranges(settings, [wanted], WantedColumns(), on_loss=on_loss,
                                             direct=mode)
                for pair in zip(each.batch.column("offset").to_pylist(),
                                each.batch.column("value").to_pylist(), strict=True)]
        finally:
            close_shared()

    return await asyncio.to_thread(work)


def expected(first: int = 0, end: int = COUNT) -> Found:
    return list(zip(range(first, end), values(range(first, end)), strict=True))


@looped
async def test_old_records_come_from_objects(tmp_path: Path, fetched: list[Range]) -> None:
    """I17: pipeline.J1: a broker is asked for what is local, and for nothing else."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        assert await read(node) == expected()
        assert [(each.first, each.end) for each in fetched] == [(log.local_start_offset, COUNT)]
        assert node.node.stats.remote.fetch_requests == 0
        for first, end in ((7, 8), (0, 1), (3, 61), (log.local_start_offset - 1, COUNT),
                           (log.local_start_offset, COUNT), (15, log.local_start_offset)):
            assert await read(node, first, end) == expected(first, end)
        fetched.clear()
        assert await read(node, mode=DirectRead.NEVER) == expected()
        assert [(each.first, each.end) for each in fetched] == [(0, COUNT)]


@looped
async def test_records_come_from_s3(
    tmp_path: Path, s3_server: S3Server, fetched: list[Range]
) -> None:
    """I17: with the credentials of this process; pages of segments are read one after the other."""
    url = s3_server.url(s3_server.bucket())
    async with tiered_node(tmp_path, remote_log_storage_url=url) as node:
        log = await filled(node)
        assert await read(node) == expected()
        assert [each.first for each in fetched] == [log.local_start_offset]


@looped
async def test_pages_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I17: client.L1, broker.tiering.U1: a log with more segments than a response has."""
    monkeypatch.setattr("quipu.client.remote_log.SEGMENTS_MAX", 2)
    monkeypatch.setattr(objects, "READ_AHEAD", 1)
    async with tiered_node(tmp_path) as node:
        await filled(node)
        assert await read(node) == expected()
        assert await read(node, 30, COUNT) == expected(30)


@looped
async def test_what_retention_deleted_is_the_same_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17: pipeline.J2: before a task begins, and while it reads."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        loop_here = asyncio.get_running_loop()

        async def forget(offset: int) -> None:
            done: list[object] = []
            log.delete_records(Offset(offset), node.node.broker.clock.now_ms(), timeout_ms=5000,
                               done=done.append)
            await until(lambda: bool(done))
            await until(lambda: int(
                test_tiering.objects(tmp_path)[0].name[:20]) > offset - PER_SEGMENT)

        really = direct.DirectReading._objects
        moved: list[int] = []

        def late(self: direct.DirectReading, wanted: Range, part: RemoteLogPart) -> object:
            if not moved:
                moved.append(45)
                asyncio.run_coroutine_threadsafe(forget(45), loop_here).result()
            return really(self, wanted, part)

        monkeypatch.setattr(direct.DirectReading, "_objects", late)
        lost: list[DataLost] = []
        found = await read(node, on_loss=lost.append)
        assert found == expected(45)
        assert [(each.first, each.end) for each in lost] == [(0, 45)]
        again: list[DataLost] = []
        assert await read(node, on_loss=again.append) == expected(45)
        assert [str(each) for each in again] == [str(each) for each in lost]
        broker_says: list[DataLost] = []
        assert await read(node, mode=DirectRead.NEVER, on_loss=broker_says.append) == found
        assert [str(each) for each in broker_says] == [str(each) for each in lost]
        with pytest.raises(DataLost, match="the log begins at 45"):
            await read(node)


@looped
async def test_reading_while_segments_move_and_expire(tmp_path: Path) -> None:
    """I17: pipeline.J1: a reader from the beginning, while records are written and retention runs.

    What it gets has no gap but the losses that it is told of, and nothing twice.
    """
    async with tiered_node(tmp_path) as node:
        await filled(node, retention_bytes="120000")
        written = asyncio.create_task(write(node, values(range(COUNT, 3 * COUNT))))
        end = COUNT
        for mode in (DirectRead.AUTO, DirectRead.ALWAYS, DirectRead.AUTO, DirectRead.ALWAYS):
            lost: list[DataLost] = []
            found = await read(node, 0, end, mode, lost.append)
            gone = {offset for each in lost for offset in range(each.first, each.end)}
            assert found == [pair for pair in expected(0, end) if pair[0] not in gone]
            assert len(gone) == sum(each.end - each.first for each in lost)
            end = log_of(node).high_watermark
        await written
        assert log_of(node).log_start_offset > 0


@looped
async def test_a_store_out_of_reach(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fetched: list[Range]
) -> None:
    """I17: pipeline.J3, pipeline.H2: one line in the log and brokers instead, or a clear error."""
    async with tiered_node(tmp_path) as node:
        await filled(node)
        lookup = node.node.broker.tier
        assert lookup is not None
        for url, why in (
                (None, "cannot be opened by other processes"),
                ("file:///nowhere/at/all", "not a directory of this machine"),
                ("s3://b/p?credentials=/etc/passwd", "names a file"),
                ("ftp://x", "its scheme is unknown"),
                ("s3://b/p?endpoint=http://127.0.0.1:9&timeout_ms=300&retries=0", "")):
            lookup.store_url = url
            fetched.clear()
            caplog.clear()
            with caplog.at_level(logging.WARNING, direct.__name__):
                for _ in range(2):
                    assert await read(node, mode=DirectRead.AUTO) == expected()
            assert [(each.first, each.end) for each in fetched] == [(0, COUNT)] * 2
            (line,) = [each.getMessage() for each in caplog.records if each.name == direct.__name__]
            assert "not read directly" in line
            assert why in line
            with pytest.raises(DirectReadFailed, match=f"directRead=always.*{why}"):
                await read(node)
            direct._memory.warned.clear()


@looped
async def test_objects_that_are_gone_or_damaged(tmp_path: Path, fetched: list[Range]) -> None:
    """I17: pipeline.J1: what was read directly before that is not read again."""
    async with tiered_node(tmp_path) as node:
        await filled(node)
        chosen = test_tiering.objects(tmp_path)[2]
        start = int(chosen.name[:20])
        data = chosen.read_bytes()
        chosen.write_bytes(data[:100] + b"?" + data[101:])
        with pytest.raises(DirectReadFailed, match="checksum"):
            await read(node)
        found: Found = await read(node, mode=DirectRead.AUTO, end=start)
        assert found == expected(0, start)
        chosen.unlink()
        with pytest.raises(DirectReadFailed, match="does not exist"):
            await read(node)
        fetched.clear()
        chosen.write_bytes(data[:100] + b"?" + data[101:])
        really = direct.DirectReading._give_up

        def repaired(self: direct.DirectReading, part: RemoteLogPart, error: Exception) -> None:
            chosen.write_bytes(data)
            really(self, part, error)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(direct.DirectReading, "_give_up", repaired)
            assert await read(node, mode=DirectRead.AUTO) == expected()
        assert [(each.first, each.end) for each in fetched] == [(start, COUNT)]


@looped
async def test_wrong_bytes_are_fetched_once_more(
    tmp_path: Path, fetched: list[Range], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17: remote.segments.R1: also where the task checks a chunk itself."""
    really = SegmentReader.stored_chunk
    asked: list[int] = []

    async def wrong(self: SegmentReader, footer: SegmentFooter, number: int) -> bytes:
        asked.append(number)
        data = bytearray(await really(self, footer, number))
        data[len(data) // 2] ^= 1
        return bytes(data)

    monkeypatch.setattr(SegmentReader, "stored_chunk", wrong)
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        assert await read(node) == expected()
        assert asked
        assert [each.first for each in fetched] == [log.local_start_offset]


@looped
async def test_compressed_chunks(tmp_path: Path, fetched: list[Range]) -> None:
    """I17: chunks that have to be decompressed come in the same order, checked in other threads."""
    async with tiered_node(tmp_path, remote_log_compression="zstd") as node:
        log = await filled(node)
        assert await read(node) == expected()
        assert await read(node, 3, 61) == expected(3, 61)
        assert [each.first for each in fetched] == [log.local_start_offset]


@looped
async def test_a_segment_without_all_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I17: pipeline.J1: an offset is never passed over, whatever the chunks hold."""
    really = objects._OpenSegment.take

    async with tiered_node(tmp_path) as node:
        await filled(node)

        def without_chunk(
            self: objects._OpenSegment, number: int, data: memoryview
        ) -> list[objects.ReadBatches]:
            return really(self, number, data[:0])

        monkeypatch.setattr(objects._OpenSegment, "take", without_chunk)
        with pytest.raises(DirectReadFailed, match="asked for offsets 0 to"):
            await read(node)


@looped
async def test_a_topic_that_is_gone_or_anew(tmp_path: Path) -> None:
    """I17: pipeline.J2: the same losses as without direct reads."""
    async with tiered_node(tmp_path) as node:
        await filled(node)
        old_id = log_of(node).topic_id
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        with pytest.raises(DataLost, match="the topic was deleted"):
            await read(node, topic_id=old_id)
        await filled(node)
        with pytest.raises(TopicRecreated):
            await read(node, topic_id=old_id)
        assert await read(node) == expected()


@looped
async def test_the_tail_asks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I17: a stream at the end of the log does not ask for remote segments in each batch."""
    asked: list[object] = []
    really = direct.describe_remote_log

    def counted(*given: object, **named: object) -> object:
        asked.append(given)
        return really(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(direct, "describe_remote_log", counted)
    async with tiered_node(tmp_path) as node:
        await node.create("t", **TIERED)
        await write(node, values(range(5)))
        for first in range(5):
            assert await read(node, first, 5, DirectRead.AUTO) == expected(first, 5)
        assert len(asked) == 1


def test_batches_are_grouped_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """I17: pipeline.H1: small ones are decoded together, and none is copied."""
    monkeypatch.setattr(objects, "GROUP_SIZE", 10)
    buffers = [memoryview(b"x" * 25), *(memoryview(b"1234"),) * 5]
    groups = list(objects.groups(buffers))
    assert [sum(map(len, each)) for each in groups] == [25, 12, 8]
    assert [buffer for each in groups for buffer in each] == buffers
    assert groups[0][0] is buffers[0]
    assert objects.CACHE_SIZE + objects.READ_AHEAD * (4 << 20) < 1 << 26


def test_the_object_is_that_of_the_range() -> None:
    """I17: client.L2: a broker cannot name that of another topic, partition or offset."""
    topic_id, segment_id = UUID(int=7), UUID(int=9)
    pointer = SegmentPointer(footer_position=40, footer_size=9, footer_crc=1)
    part = RemoteLogPart(topic_id, 0, 100, "file:///x",
                         (SegmentPlace(20, 40, 1, segment_id, pointer.encode()),))
    (span,) = spans_of(Range("t", 1, 20, 30), part)
    assert span.name.key == f"{topic_id}/1/{20:020}-{segment_id}.log"
    assert span[1:] == (pointer, 20, 30)
    for wrong in (b"", bytes(24), b"x" * 128):
        with pytest.raises(MalformedBytes):
            spans_of(Range("t", 1, 20, 30), part._replace(
                segments=(SegmentPlace(20, 40, 1, segment_id, wrong),)))
