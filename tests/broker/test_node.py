"""The life of a node: what a signal does at each stage of it."""

import asyncio
import signal
from pathlib import Path

import pytest

from quipu.broker import node as node_module
from quipu.broker.node import Node
from quipu.model.errors import QuipuError
from tests.harness.here import NodeHere, settings_here
from tests.looped import looped


@looped
async def test_a_signal_while_serving_stops_in_order(tmp_path: Path) -> None:
    """K10: SIGTERM leaves a directory that the next start need not check."""
    settings = settings_here(tmp_path)
    announced: list[int] = []

    def announce(_host: str, port: int) -> None:
        announced.append(port)
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)

    await asyncio.wait_for(node_module.run(settings, announce), timeout=20)

    assert announced[0] > 0
    async with NodeHere(tmp_path) as again:
        assert again.node.broker.directory.was_clean


@looped
async def test_a_signal_while_starting_gives_the_start_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10: a long recovery can be interrupted; the directory and the port are free afterwards."""
    settings = settings_here(tmp_path)
    recover = asyncio.Event()

    async def slow(*_: object) -> None:
        recover.set()
        await asyncio.sleep(60)

    monkeypatch.setattr("quipu.broker.partitions.partitions.Partitions.recover", slow)
    running = asyncio.ensure_future(node_module.run(settings, lambda *_: None))
    await recover.wait()
    signal.raise_signal(signal.SIGINT)
    await asyncio.wait_for(running, timeout=20)

    monkeypatch.undo()
    async with NodeHere(tmp_path):
        pass


@looped
async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """K9: the second node says who is in the way, and harms nothing."""
    async with NodeHere(tmp_path):
        with pytest.raises(QuipuError, match="in use by another process"):
            await Node(settings_here(tmp_path)).start()
