"""Records that one node has deleted are gone on all nodes, soon; over a real PostgreSQL."""

import asyncio

import pytest

from quipu.model.errors import OffsetOutOfRange
from quipu.model.ids import Offset
from quipu.runtime.objects.memory import MemoryStore
from tests.contract.control_plane.planes import ByUrl, opened, postgres_url
from tests.diskless.nodes import LOG, TOPIC, Node
from tests.harness.postgres import PostgresServer
from tests.looped import LoopClock, looped

SECONDS_MAX = 0.9  # less than the time between two looks at logs that are being read


@looped
async def test_deleted_records_are_gone_on_other_nodes(postgres_server: PostgresServer) -> None:
    """D7, diskless.R12: also if all of them are in that node's cache, and nobody reads there."""
    under_test = ByUrl(postgres_url(postgres_server))
    store = MemoryStore(LoopClock().now_ms)
    async with opened(under_test) as plane, opened(under_test) as other_plane:
        await plane.create_logs(TOPIC, "t", 1)
        node, other = Node(store, plane), Node(store, other_plane, node_id=2)
        for number in range(6):
            await node.append(f"v{number}")
        assert await other.values() == [f"v{number}" for number in range(6)]
        await asyncio.sleep(1.5)  # nobody reads: the bounds are not asked for
        asked = other.reader.stats.bounds_asked
        assert (await other.read(1)).size > 0
        bounds = await plane.delete_records(LOG, Offset(4), 0)
        assert bounds is not None
        async with asyncio.timeout(SECONDS_MAX):
            while (known := other.reader.bounds(LOG)) is None or known.log_start_offset < 4:
                await asyncio.sleep(0.005)
        with pytest.raises(OffsetOutOfRange):
            await other.read(1)
        assert other.reader.stats.bounds_asked <= asked + 2
        assert (await other.read(4)).size > 0
        await node.close()
        await other.close()
