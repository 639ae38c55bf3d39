"""ListOffsets by time, in bulk; what it finds is in test_log_handlers.py."""

import asyncio
from pathlib import Path

import pytest

from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.model.errors import Code
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.harness.here import NodeHere
from tests.looped import looped


@looped
async def test_searches_end_with_the_client_and_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: a request for hundreds of searches costs nothing once its client is gone."""
    searched, go_on = 0, asyncio.Event()

    async def slow(*_: object) -> None:
        nonlocal searched
        searched += 1
        await go_on.wait()
        await asyncio.sleep(0.01)

    monkeypatch.setattr(ReplicatedPartition, "find_timestamp", slow)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[
        ListOffsetsPartition(partition_index=index, timestamp=7) for index in range(300)])])
    async with NodeHere(tmp_path, request_max_wait_ms="1000") as node:
        await node.create("t", 300)
        async with node.connect() as peer:
            peer.send(request, 8)
            while not searched:
                await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0.001)
        go_on.set()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert searched == 1
        async with node.connect() as peer:
            response = await peer.ask(request, 8)
        codes = [part.error_code for part in response.topics[0].partitions]
        assert 1 < searched < 300
        assert codes == sorted(codes)
        assert set(codes) == {0, Code.REQUEST_TIMED_OUT}
