"""A node with diskless topics inside the test's loop, and requests to it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from quipu.broker.diskless.partition import DisklessPartition
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from quipu.wire.record_batch import decode_records, parse_header
from tests.harness.here import NodeHere, Peer, batch_of, produce

FLUSH_MS = "5"
FETCH_VERSION = 12
SECONDS_MAX = 20.0


def diskless_node(path: Path, **overrides: str) -> NodeHere:
    """A node whose objects are in a directory, ordered in a SQLite file."""
    return NodeHere(path, **{
        "diskless_storage_system_enable": "true", "diskless_flush_interval_ms": FLUSH_MS,
        "group_initial_rebalance_delay_ms": "0", **overrides})


async def create(node: NodeHere, name: str = "t", partitions: int = 1, **configs: str) -> bytes:
    """A diskless topic that can be written to."""
    topic_id = await node.create(name, partitions, diskless_enable="true", **configs)
    await until(lambda: all(
        found is not None and found.is_known
        for found in (partition(node, name, index) for index in range(partitions))))
    return topic_id


def partition(node: NodeHere, name: str = "t", index: int = 0) -> DisklessPartition | None:
    assert node.node.diskless is not None
    return node.node.diskless.partitions.find_for_wire(name, index)


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.005)


async def until_true(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until what `condition` gives is true."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():
            await asyncio.sleep(0.02)


async def put(peer: Peer, topic: str, *values: bytes, acks: int = -1, **header: int) -> Any:
    """Produce one batch to partition 0, and give the partition's part of the response."""
    response = await peer.ask(produce(topic, batch_of(*values, **header), acks=acks), 9)
    return response.responses[0].partition_responses[0]


async def fetch(
    peer: Peer, topic: str, offset: int, *, index: int = 0, max_wait_ms: int = 500,
    min_bytes: int = 1, max_bytes: int = 1 << 20,
) -> Any:
    """Fetch one partition, and give its part of the response."""
    response = await peer.ask(FetchRequest(
        max_wait=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[FetchTopic(
            topic=topic, partitions=[FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)])]),
        FETCH_VERSION)
    return response.responses[0].partitions[0]


async def read_all(peer: Peer, topic: str, *, index: int = 0, start: int = 0) -> list[Any]:
    """Offsets and values of all records up to the high watermark."""
    found: list[Any] = []
    offset = start
    while True:
        part = await fetch(peer, topic, offset, index=index)
        assert part.error_code == 0, part
        records = records_of(part)
        found += [each for each in records if each[0] >= offset]
        if found:
            offset = found[-1][0] + 1
        if 0 <= part.high_watermark <= offset:
            return found


def records_of(part: Any) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the records in a fetched partition."""
    found: list[tuple[int, bytes | None]] = []
    data = memoryview(bytes(part.records or b""))
    while data:
        header = parse_header(data)
        found += [(header.base_offset + delta, record.value) for delta, record in enumerate(
            decode_records(data[: header.size], size_max=1 << 24))]
        data = data[header.size :]
    return found


async def list_offset(peer: Peer, topic: str, timestamp: int, *, index: int = 0) -> Any:
    """ListOffsets of one partition."""
    response = await peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(
            partition_index=index, timestamp=timestamp, current_leader_epoch=-1)])],
        replica_id=-1), 8)
    return response.topics[0].partitions[0]


def topic_uuid(topic_id: bytes) -> UUID:
    return UUID(bytes=topic_id)
