"""Several nodes write one log: one dense order that all of them read, over real stores."""

import asyncio
import random
from pathlib import Path

import pytest

from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.model.errors import Code
from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.urls import open_store
from tests.contract.control_plane.planes import ByUrl, postgres_url, sqlite_url
from tests.diskless.faults import Fault
from tests.diskless.nodes import TOPIC, Node, World, memory_world
from tests.harness.s3_server import S3Server
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.looped import LoopClock, looped, timeless

SOON = WriterLimits(flush_interval_ms=5, flush_bytes=2000)


async def one_order(world: World, *, node_count: int = 3, count: int = 120) -> None:
    """Nodes write by turns; all read the same, each producer's records in its order."""
    nodes = [await world.node(number + 1, limits=SOON) for number in range(node_count)]
    logs = [LogKey(TOPIC, partition) for partition in range(2)]
    acknowledged: dict[tuple[LogKey, int], str] = {}

    async def write(node: Node, number: int) -> None:
        rng = random.Random(number)
        for each in range(count):
            log = logs[rng.randrange(2)]
            value = f"n{number}-{each}"
            answer = node.append(value, log=log)
            if rng.random() < 0.3:
                outcome = await answer
                assert isinstance(outcome, BatchOutcome), outcome
                assert outcome.code is Code.NONE
                acknowledged[log, outcome.base_offset] = value

    await asyncio.gather(*(write(node, number) for number, node in enumerate(nodes)))
    for node in nodes:
        await node.writer.flush()
    found = [[await node.values(log, max_bytes=1500) for log in logs] for node in nodes]
    assert all(each == found[0] for each in found)
    for (log, offset), value in acknowledged.items():
        assert found[0][log.partition][offset] == value
    assert sum(map(len, found[0])) == node_count * count
    for number in range(node_count):
        for values in found[0]:
            own = [int(value.split("-")[1]) for value in values if value.startswith(f"n{number}-")]
            assert own == sorted(own)
    for node in nodes:
        await node.close()
        await node.plane.close()


@timeless
async def test_in_memory() -> None:
    """D1, D5, diskless.R10: one order."""
    await one_order(memory_world())


def test_with_sqlite_and_a_directory(tmp_path: Path) -> None:
    """D1, D38: the same with a real file and a real directory."""

    @looped
    async def story() -> None:
        store = LocalStore(str(tmp_path / "objects"))
        plane = ByUrl(sqlite_url(tmp_path))
        await one_order(World(store, plane.client), node_count=2, count=60)
        await store.close()

    story()


def test_with_postgres_and_s3(
    request: pytest.FixtureRequest, s3_server: S3Server
) -> None:
    """D1, D38: the same with real servers."""
    url = postgres_url(request.getfixturevalue("postgres_server"))

    @looped
    async def story() -> None:
        store = open_store(s3_server.url(s3_server.bucket()), LoopClock().now_ms)
        await one_order(World(store, ByUrl(url).client), count=40)
        await store.close()

    story()


def test_an_s3_server_that_times_out_after_success(
    tmp_path: Path, s3_server: S3Server
) -> None:
    """D6, D38, diskless.W5: its object counts as stored, once; reads survive cut answers."""

    @looped
    async def story() -> None:
        with StoreProxy(s3_server.port) as proxy:
            store = open_store(
                s3_server.url(s3_server.bucket(), port=proxy.port), LoopClock().now_ms)
            world = World(store, ByUrl(sqlite_url(tmp_path)).client)
            node, other = await world.node(1, limits=SOON), await world.node(2)
            answers = []
            for number in range(10):
                proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT", 1)
                answers.append(node.append(f"v{number}"))
                await node.writer.flush()
            offsets = [answer.base_offset for answer in await asyncio.gather(*answers)
                       if isinstance(answer, BatchOutcome)]
            assert offsets == list(range(10))
            proxy.break_next(WireFault.CUT_BODY, b"GET", 2)
            assert await other.values() == [f"v{number}" for number in range(10)]
            proxy.heal()
            await node.close()
            await other.close()
            await store.close()

    story()


@timeless
async def test_nodes_that_race_with_one_producer_accept_each_batch_once() -> None:
    """D3: a producer that moves between nodes while the old one still writes."""
    world = memory_world()
    nodes = [await world.node(number, limits=SOON) for number in (1, 2)]
    nodes[0].store.put_faults.plan(Fault.LOSE, Fault.REFUSE)
    slow = [nodes[0].append(f"v{number}", producer=(5, 0, number)) for number in range(3)]
    fast = [nodes[1].append(f"v{number}", producer=(5, 0, number)) for number in range(5)]
    outcomes = await asyncio.gather(*slow, *fast)
    assert [outcome.code for outcome in outcomes] == [Code.NONE] * 8
    assert await nodes[0].values() == [f"v{number}" for number in range(5)]
    for node in nodes:
        await node.close()


def test_an_object_in_which_all_was_refused_is_left_to_the_clean_up(tmp_path: Path) -> None:
    """D3, D6, diskless.W4: it is committed without batches, so it is known and deletable."""

    @looped
    async def story() -> None:
        store = LocalStore(str(tmp_path / "objects"))
        node = await World(store, ByUrl(sqlite_url(tmp_path)).client).node(limits=SOON)
        node.store.put_faults.plan(Fault.DENY)
        node.store.put_seconds[0] = 0.2
        first = node.append("a" * 2000, producer=(5, 0, 0))
        second = node.append("b" * 2000, producer=(5, 0, 1))
        assert [(await first).code, (await second).code] == [
            Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER]
        await node.writer.flush()
        [known] = await node.plane.objects()
        assert known.key == node.plane.commits[0]
        assert known.marked_ms is not None
        again = [node.append(value, producer=(5, 0, number)) for number, value in enumerate("ab")]
        assert [(await answer).code for answer in again] == [Code.NONE] * 2
        assert await node.values() == ["a", "b"]
        await node.close()
        await node.plane.close()
        await store.close()

    story()
