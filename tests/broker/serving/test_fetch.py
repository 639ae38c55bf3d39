"""Fetch: long polls, sessions, limits, errors; and that internal batches look like nothing."""

import asyncio
import time
from pathlib import Path
from uuid import UUID

import pytest

from quipu.model.batch_types import CONFIGURATION, BatchType
from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest
from quipu.wire.record_batch import decode_records, parse_header
from tests.harness.here import NodeHere, Peer, batch_of, produce
from tests.looped import looped

VERSION = 12


def fetch(
    *offsets: int, topic: str | bytes = "t", max_wait: int = 0, min_bytes: int = 1,
    max_bytes: int = 1 << 30, part_bytes: int = 1 << 20, **fields: object,
) -> FetchRequest:
    """Fetch partitions 0, 1, ... from the offsets given."""
    parts = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=part_bytes)
        for index, offset in enumerate(offsets)
    ]
    name = (FetchTopic(topic=topic, partitions=parts) if isinstance(topic, str)
            else FetchTopic(topic_id=UUID(bytes=topic), partitions=parts))
    return FetchRequest(
        max_wait=max_wait, min_bytes=min_bytes, max_bytes=max_bytes,
        topics=[name] if parts else [], **fields)  # type: ignore[arg-type]


def values(response: FetchResponse, partition: int = 0) -> list[bytes | None]:
    """The records of one partition, decoded."""
    (part,) = [part for topic in response.responses for part in topic.partitions
               if part.partition_index == partition]
    assert part.error_code == 0
    found = []
    data = memoryview(part.records or b"")
    while data:
        size = parse_header(data).size
        found += [record.value for record in decode_records(data[:size], size_max=1 << 20)]
        data = data[size:]
    return found


def codes(response: FetchResponse) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partitions]


async def fill(peer: Peer, *batches: bytearray, topic: str = "t") -> None:
    for batch in batches:
        response = await peer.ask(produce(topic, batch), 9)
        assert response.responses[0].partition_responses[0].error_code == 0


@looped
async def test_every_version_is_served(tmp_path: Path) -> None:
    """K2, K12: v4 to v18, by name and from v13 on by id; with and without committed reads."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        topic_id = await node.create("t")
        await fill(peer, batch_of(b"a", b"b"), batch_of(b"c"))
        for version in range(4, 19):
            for isolation in (0, 1):
                topic = topic_id if version >= 13 else "t"
                response = await peer.ask(
                    fetch(0, topic=topic, isolation_level=isolation), version)
                assert values(response) == [b"a", b"b", b"c"]
                part = response.responses[0].partitions[0]
                assert part.high_watermark == part.last_stable_offset == 3


@looped
async def test_a_fetch_waits_for_records_and_no_longer(tmp_path: Path) -> None:
    """K2: long polling."""
    async with NodeHere(tmp_path) as node, node.connect() as consumer, node.connect() as producer:
        await node.create("t")
        started = time.monotonic()
        consumer.send(fetch(0, max_wait=10_000), VERSION)
        await asyncio.sleep(0.1)
        await fill(producer, batch_of(b"at last"))
        assert values(await consumer.answer()) == [b"at last"]
        assert time.monotonic() - started < 5


@looped
async def test_a_fetch_of_nothing_ends_after_its_wait(tmp_path: Path) -> None:
    """K2: max_wait_ms."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        started = time.monotonic()
        assert values(await peer.ask(fetch(0, max_wait=200), VERSION)) == []
        assert 0.19 <= time.monotonic() - started < 5
        assert node.node.stats.fetch_waiters == 0


@looped
async def test_a_fetch_waits_for_as_much_as_it_asks(tmp_path: Path) -> None:
    """K2: min_bytes, over all partitions."""
    async with NodeHere(tmp_path) as node, node.connect() as consumer, node.connect() as producer:
        await node.create("t", 2)
        consumer.send(fetch(0, 0, max_wait=10_000, min_bytes=3000), VERSION)
        await producer.ask(produce("t", batch_of(b"x" * 1000), batch_of(b"y" * 1000)), 9)
        await asyncio.sleep(0.05)
        assert node.node.stats.fetch_waiters == 1
        await fill(producer, batch_of(b"z" * 1000))
        response = await consumer.answer()
        assert len(values(response, 0)) + len(values(response, 1)) == 3


@looped
async def test_a_waiting_fetch_sees_only_what_is_flushed(tmp_path: Path) -> None:
    """V17: with flush.messages=1 nobody reads what a crash could take back."""
    async with NodeHere(tmp_path) as node, node.connect() as consumer, node.connect() as producer:
        await node.create("t", flush_messages="1")
        consumer.send(fetch(0, max_wait=10_000), VERSION)
        await fill(producer, batch_of(b"safe"))
        assert values(await consumer.answer()) == [b"safe"]
        log = node.node.broker.partitions.find("t", 0).log
        assert log.flusher.flushed_offset == log.high_watermark == 1


@looped
async def test_limits_cut_between_batches_and_never_starve(tmp_path: Path) -> None:
    """K2: max_bytes and partition_max_bytes; the first batch comes whatever its size."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2)
        for _ in range(5):
            await peer.ask(produce("t", batch_of(b"x" * 1000), batch_of(b"y" * 1000)), 9)
        assert len(values(await peer.ask(fetch(0, part_bytes=2500), VERSION))) == 2
        assert len(values(await peer.ask(fetch(0, part_bytes=1), VERSION))) == 1
        response = await peer.ask(fetch(0, 0, max_bytes=3500), VERSION)
        assert [len(values(response, 0)), len(values(response, 1))] == [3, 0]
        response = await peer.ask(fetch(0, 0, max_bytes=1), VERSION)
        assert [len(values(response, 0)), len(values(response, 1))] == [1, 0]


@looped
async def test_an_offset_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    """K2: the client drops what it did not ask for."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await fill(peer, batch_of(b"a", b"b", b"c"), batch_of(b"d"))
        assert values(await peer.ask(fetch(1), VERSION)) == [b"a", b"b", b"c", b"d"]
        assert values(await peer.ask(fetch(3), VERSION)) == [b"d"]
        assert values(await peer.ask(fetch(4), VERSION)) == []


@looped
async def test_what_cannot_be_fetched_is_said_at_once(tmp_path: Path) -> None:
    """K2: errors are not waited for, and one partition's does not hide another's records."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        topic_id = await node.create("t", 1)
        await fill(peer, batch_of(b"a"))
        wait = {"max_wait": 60_000, "min_bytes": 100_000}
        assert codes(await peer.ask(fetch(2, **wait), VERSION)) == [Code.OFFSET_OUT_OF_RANGE]
        assert codes(await peer.ask(fetch(-1, **wait), VERSION)) == [Code.OFFSET_OUT_OF_RANGE]
        response = await peer.ask(fetch(0, 0, **wait), VERSION)
        assert codes(response) == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert values(response) == [b"a"]
        unknown = await peer.ask(fetch(0, topic=b"y" * 16, **wait), 13)
        assert codes(unknown) == [Code.UNKNOWN_TOPIC_ID]
        assert codes(await peer.ask(fetch(0, 0, topic=topic_id, **wait), 13)) == [
            0, Code.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(None, Code.NONE), (0, Code.NONE), (1, Code.UNKNOWN_LEADER_EPOCH),
     (-1, Code.FENCED_LEADER_EPOCH)],
    ids=["not said", "the current one", "one to come", "one that is over"],
)
@looped
async def test_leader_epochs_are_checked(tmp_path: Path, epoch: int | None, code: Code) -> None:
    """K2: a client with other metadata must refresh it first."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        request = fetch(0)
        now = node.node.broker.partitions.find("t", 0).leader_epoch
        request.topics[0].partitions[0].current_leader_epoch = -1 if epoch is None else now + epoch
        assert codes(await peer.ask(request, VERSION)) == [code]


@looped
async def test_a_history_that_differs_is_told_where(tmp_path: Path) -> None:
    """K2: KIP-595's diverging epoch, for clients that send their last fetched epoch."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await fill(peer, batch_of(b"a"), batch_of(b"b"))
        now = node.node.broker.partitions.find("t", 0).leader_epoch
        request = fetch(2)
        request.topics[0].partitions[0].last_fetched_epoch = now
        (part,) = (await peer.ask(request, VERSION)).responses[0].partitions
        assert part.diverging_epoch.end_offset == -1
        request = fetch(5)
        request.topics[0].partitions[0].last_fetched_epoch = now
        (part,) = (await peer.ask(request, VERSION)).responses[0].partitions
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (now, 2)


# --- sessions


@looped
async def test_a_session_responds_only_with_changes(tmp_path: Path) -> None:
    """K2: KIP-227; named once, partitions are fetched until forgotten."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t", 3)
        first = await peer.ask(fetch(0, 0, 0, session_epoch=0), VERSION)
        assert first.session_id > 0
        assert codes(first) == [0, 0, 0]

        session = {"session_id": first.session_id}
        quiet = await peer.ask(fetch(session_epoch=1, **session), VERSION)
        assert quiet.responses == []

        await peer.ask(produce("t", batch_of(b"news")), 9)
        news = await peer.ask(fetch(session_epoch=2, **session), VERSION)
        assert values(news) == [b"news"]
        assert codes(news) == [0]

        forgotten = [ForgottenTopic(topic="t", partitions=[0])]
        after = await peer.ask(
            fetch(session_epoch=3, forgotten_topics_data=forgotten, **session), VERSION)
        assert after.responses == []
        refused = await peer.ask(fetch(session_epoch=3, **session), VERSION)
        assert refused.error_code == Code.INVALID_FETCH_SESSION_EPOCH


@looped
async def test_a_session_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """K2: the client starts a new one, as after a restart of the node."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        response = await peer.ask(fetch(session_id=99, session_epoch=4), VERSION)
        assert response.error_code == Code.FETCH_SESSION_ID_NOT_FOUND


@looped
async def test_a_session_tells_of_a_moved_log_start(tmp_path: Path) -> None:
    """K2: the high watermark and the log start offset are news, too."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        await fill(peer, batch_of(b"a"))
        first = await peer.ask(fetch(1, session_epoch=0), VERSION)
        log = node.node.broker.partitions.find("t", 0).log
        log.delete_records(1, now_ms=0)
        second = await peer.ask(
            fetch(session_id=first.session_id, session_epoch=1), VERSION)
        assert second.responses[0].partitions[0].log_start_offset == 1


# --- order, and the end


@looped
async def test_requests_behind_a_waiting_fetch_wait_their_turn(tmp_path: Path) -> None:
    """K2: responses leave in the order of the requests, and requests take effect in it."""
    async with NodeHere(tmp_path) as node, node.connect() as peer, node.connect() as other:
        await node.create("t")
        peer.send(fetch(0, max_wait=10_000), VERSION)
        peer.send(produce("t", batch_of(b"mine")), 9)
        peer.send(ApiVersionsRequest(), 0)
        await asyncio.sleep(0.1)
        log = node.node.broker.partitions.find("t", 0).log
        assert log.end_offset == 0  # not looked at while the fetch before it waits
        await fill(other, batch_of(b"theirs"))
        assert values(await peer.answer()) == [b"theirs"]
        produced = await peer.answer()
        assert produced.responses[0].partition_responses[0].base_offset == 1
        await peer.answer()


@looped
async def test_a_deleted_topic_ends_the_wait(tmp_path: Path) -> None:
    """K5: a fetch that waits for records of a topic gets an error when it is deleted."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        topic_id = await node.create("t")
        peer.send(fetch(0, max_wait=60_000), VERSION)
        await asyncio.sleep(0.05)
        await node.node.broker.cluster.controller.delete_topics([(None, UUID(bytes=topic_id))])
        assert codes(await peer.answer()) == [Code.UNKNOWN_TOPIC_OR_PARTITION]


@looped
async def test_a_stopping_node_responds_to_waiting_fetches(tmp_path: Path) -> None:
    """K10: a long poll does not hold up a stop, nor is it cut off without a response."""
    node = NodeHere(tmp_path)
    async with node:
        await node.create("t")
        reader, writer = await asyncio.open_connection(*node.address)
        peer = Peer(reader, writer)
        peer.send(fetch(0, max_wait=60_000), VERSION)
        await asyncio.sleep(0.05)
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 10
    assert values(await peer.answer()) == []
    writer.close()


# --- internal batches (T5)


async def offsets_of(peer: Peer, timestamp: int) -> tuple[int, int]:
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])])
    (part,) = (await peer.ask(request, 7)).topics[0].partitions
    assert part.error_code == 0
    return part.offset, part.timestamp


@looped
async def test_internal_batches_are_hidden_and_take_no_offsets(tmp_path: Path) -> None:
    """T5, T11: internal batches at the start, in the middle and at the end, an unknown type too."""
    async with NodeHere(tmp_path) as node, node.connect() as peer:
        await node.create("t")
        partition = node.node.broker.partitions.find("t", 0)
        log = partition.log

        def internal(*types: int) -> None:
            for number in types:
                partition.internal.append(
                    BatchType(number), [(b"k", b"internal"), (None, b"twice")],
                    9_999_999_999_999)

        internal(CONFIGURATION, 99)
        await fill(peer, batch_of(b"a", timestamp=1000), batch_of(b"b", b"c", timestamp=2000))
        internal(CONFIGURATION)
        log.roll(now_ms=0)
        internal(99, CONFIGURATION)
        await fill(peer, batch_of(b"d", timestamp=3000))
        internal(CONFIGURATION, 99)

        assert values(await peer.ask(fetch(0), VERSION)) == [b"a", b"b", b"c", b"d"]
        assert values(await peer.ask(fetch(3), VERSION)) == [b"d"]
        at_end = await peer.ask(fetch(4), VERSION)
        assert values(at_end) == []
        assert at_end.responses[0].partitions[0].high_watermark == 4  # so lag is 0
        assert await offsets_of(peer, -2) == (0, -1)
        assert await offsets_of(peer, -1) == (4, -1)
        assert await offsets_of(peer, 1500) == (1, 2000)
        assert await offsets_of(peer, 3000) == (3, 3000)
        assert await offsets_of(peer, 3001) == (-1, -1)
        assert await offsets_of(peer, -3) == (3, 3000)
        assert log.log_end > 4 + 12  # they are there
