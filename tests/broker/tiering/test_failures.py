"""A store and a database that fail: producing goes on, copying later, reads are never wrong.

The store is a real S3 server behind a wire that breaks, the database a real PostgreSQL.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.remote.segments.names import find_name
from quipu.runtime.databases import postgres as connections
from quipu.runtime.objects.store import ObjectStore
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.broker.tiering.test_tiering import (
    COUNT,
    fetched,
    filled,
    log_of,
    read_all,
    tiered_node,
    until,
    values,
    write,
)
from tests.harness.here import NodeHere
from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import S3Server
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.looped import looped

MORE = 60
QUICK = "&timeout_ms=1000&retries=0"
WAIT_MS = 800
SLACK_SECONDS = 2.0  # a busy machine


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[StoreProxy]:
    with StoreProxy(s3_server.port) as running:
        yield running


@asynccontextmanager
async def node_on(
    path: Path, server: S3Server, proxy: StoreProxy, **settings: str
) -> AsyncIterator[NodeHere]:
    url = server.url(server.bucket(), port=proxy.port).replace("&timeout_ms=20000", QUICK)
    async with tiered_node(path, remote_log_storage_url=url, remote_log_chunk_bytes="65536",
                           remote_fetch_max_wait_ms=str(WAIT_MS), **settings) as node:
        yield node


def store_of(node: NodeHere) -> ObjectStore:
    return node.node._tiering._storage._store  # type: ignore[union-attr]


async def keys_of(node: NodeHere) -> list[str]:
    return [info.key for info in (await store_of(node).list()).objects if find_name(info.key)]


@pytest.mark.parametrize("fault", [
    WireFault.REFUSE, WireFault.STALL, WireFault.LOSE_RESPONSE])
def test_producing_goes_on_and_copying_later(
    tmp_path: Path, s3_server: S3Server, proxy: StoreProxy, fault: WireFault,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R15: while the store refuses, hangs, or does what is asked and does not say so.  It is logged
    and counted; afterwards all is copied once, and no object is left over.
    """

    @looped
    async def scenario() -> None:
        async with node_on(tmp_path, s3_server, proxy, remote_log_orphan_grace_ms="1000") as node:
            log = await filled(node)
            stats = node.node.stats.remote
            await until(lambda: not log.tier.segments(1))
            tiered = log.highest_tiered_offset
            proxy.break_next(fault)
            with caplog.at_level(logging.WARNING, "quipu.broker.tiering"):
                await write(node, values(range(COUNT, COUNT + MORE)))
                assert log.log_end_offset == COUNT + MORE
                await until(lambda: stats.copy_errors > 0 and stats.task_errors > 0)
                await until(lambda: "is tried again in" in caplog.text)
            assert log.highest_tiered_offset == tiered
            proxy.heal()
            await until(lambda: log.highest_tiered_offset >= COUNT + MORE - 20)
            assert await read_all(node, 0, COUNT + MORE) == values(range(COUNT + MORE))
            metadata = node.node._tiering._metadata  # type: ignore[union-attr]
            (task,) = node.node._tiering.log._tasks.values()  # type: ignore[union-attr]
            async with asyncio.timeout(20):
                while True:
                    known = await metadata.list_remote_log_segments(task.led.partition)
                    names = [find_name(key) for key in await keys_of(node)]
                    if {each.segment_id.id for each in known} == {
                            name.segment_id for name in names if name}:
                        break
                    await asyncio.sleep(0.1)
            assert len({each.start_offset for each in known}) == len(known)

    scenario()


@pytest.mark.parametrize("fault", [
    WireFault.FLIP_BIT, WireFault.CUT_BODY, WireFault.REFUSE, WireFault.STALL])
def test_reads_of_a_bad_store_are_errors_and_never_wrong(
    tmp_path: Path, s3_server: S3Server, proxy: StoreProxy, fault: WireFault
) -> None:
    """R15: KAFKA_STORAGE_ERROR, or nothing yet; afterwards the same offset is read."""

    @looped
    async def scenario() -> None:
        async with node_on(tmp_path, s3_server, proxy) as node:
            await filled(node)
            stats = node.node.stats.remote
            proxy.break_next(fault, b"GET")
            codes = set()
            async with asyncio.timeout(20):
                while Code.KAFKA_STORAGE_ERROR not in codes:
                    code, found = await fetched(node, 20)
                    codes.add(code)
                    assert not found
            assert codes <= {Code.NONE, Code.KAFKA_STORAGE_ERROR}
            assert stats.fetch_errors > 0
            proxy.heal()
            await until(lambda: node.node._tiering.reads.pending == 0)  # type: ignore[union-attr]
            assert await read_all(node, 0, COUNT) == values(range(COUNT))

    scenario()


@looped
async def test_a_missing_object_is_an_error_of_its_records_alone(tmp_path: Path) -> None:
    """R15: somebody deleted it; what other objects have is read as before."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        first, second, *_ = await keys_of(node)
        start = int(second.rpartition("/")[2][:20])
        await store_of(node).delete([first])
        code, found = await fetched(node, 3)
        assert (code, found) == (Code.KAFKA_STORAGE_ERROR, [])
        assert await read_all(node, start, COUNT) == values(range(start, COUNT))
        assert log.log_start_offset == 0
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        async with asyncio.timeout(10):
            while await keys_of(node):
                await asyncio.sleep(0.02)


def fetch_both(offset: int, *, max_wait: int) -> FetchRequest:
    """An old record of `t`, and the first one of `quick`."""
    topics = [FetchTopic(topic=topic, partitions=[FetchPartition(
        partition=0, fetch_offset=at, partition_max_bytes=3000)])
        for topic, at in (("t", offset), ("quick", 0))]
    return FetchRequest(
        max_wait=max_wait, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)


def test_a_slow_store_holds_up_nobody(
    tmp_path: Path, s3_server: S3Server, proxy: StoreProxy
) -> None:
    """R15, K2: a fetch that needs its bytes returns within remote.fetch.max.wait.ms, with what
    other partitions have; other clients get theirs at once.
    """

    @looped
    async def scenario() -> None:
        async with node_on(tmp_path, s3_server, proxy) as node:
            await filled(node)
            await node.create("quick")
            await write(node, [b"here"], "quick")
            proxy.break_next(WireFault.STALL, b"GET")
            async with node.connect() as patient, node.connect() as other:
                for offset in (0, 60):
                    began = time.monotonic()
                    patient.send(fetch_both(offset, max_wait=20_000), 11)
                    asked = time.monotonic()
                    await other.ask(fetch_both(COUNT - 1, max_wait=20_000), 11)
                    assert time.monotonic() - asked < WAIT_MS / 1000, "the other client waited"
                    answer = await patient.answer()
                    took = time.monotonic() - began
                    assert isinstance(answer, FetchResponse)
                    sizes = {each.topic: len(each.partitions[0].records or b"")
                             for each in answer.responses}
                    assert sizes["quick"] > 0
                    assert sizes.get("t", 0) == 0
                    assert took < WAIT_MS / 1000 + SLACK_SECONDS, took
            proxy.heal()
            await until(lambda: node.node._tiering.reads.pending == 0)  # type: ignore[union-attr]
            assert await read_all(node, 0, COUNT) == values(range(COUNT))

    scenario()


def test_a_database_that_restarts_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R15: PostgreSQL ends at once; producing goes on, what was read is still read, and copying
    goes on when it is back.
    """
    monkeypatch.setattr(connections, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.5)
    server = PostgresServer()

    @looped
    async def scenario() -> None:
        async with tiered_node(tmp_path, rlmm_config_metadata_storage_url=server.url) as node:
            log = await filled(node)
            stats = node.node.stats.remote
            await asyncio.to_thread(server.crash)
            await write(node, values(range(COUNT, COUNT + MORE)))
            await until(lambda: stats.task_errors > 0)
            assert await read_all(node, COUNT + MORE - 5, COUNT + MORE) == values(
                range(COUNT + MORE - 5, COUNT + MORE))
            await asyncio.to_thread(server.start)
            await until(lambda: log.highest_tiered_offset >= COUNT + MORE - 20)
            assert await read_all(node, 0, COUNT + MORE) == values(range(COUNT + MORE))
        async with tiered_node(tmp_path, rlmm_config_metadata_storage_url=server.url) as node:
            assert await read_all(node, 0, COUNT + MORE) == values(range(COUNT + MORE))
            assert log_of(node).log_start_offset == 0

    try:
        scenario()
    finally:
        server.stop()
