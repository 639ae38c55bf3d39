"""A node that measures for how long its loop is held: the processor time between two of its turns.

    with measured(RunningNode(tmp_path / "data")) as node:
        before = len(holds(node))
        attack()
        assert max(holds(node)[before:], default=0) < 0.05

Processor time, not time by the clock: on a busy machine the loop waits for a processor as well.
A timer of a millisecond looks at it, so that what was held for less than that is not seen.  Garbage
collections do not count: a full one comes each time the node's objects have doubled, whatever the
node does then (runtime/garbage.py).
"""

import asyncio
import gc
import os
import threading
import time
from pathlib import Path
from typing import TextIO

from quipu.broker import node as broker_node
from quipu.cli.main import main
from tests.harness.node import REPOSITORY, RunningNode

PROGRAM = ["-m", "tests.harness.loop_holds"]
TICK_SECONDS = 0.001
HOLD_SECONDS_MIN = 0.003  # a shorter one is not worth a line
VARIABLE = "LOOP_HOLDS_FILE"  # where the node writes them, one per line


def measured(node: RunningNode) -> RunningNode:
    """`node`, which is not started yet, as one that measures."""
    node.program = PROGRAM
    node.environment = {**node.environment, VARIABLE: str(_path(node)),
                        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"}
    return node


def holds(node: RunningNode) -> list[float]:
    """The holds so far, in seconds, in their order."""
    path = _path(node)
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


def _path(node: RunningNode) -> Path:
    return node.directory.with_name(f"{node.directory.name}.holds")


class _Probe:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._collection_started = 0.0
        gc.callbacks.append(self._collecting)

    def tick(self) -> None:
        now = time.thread_time()
        if now - self._last >= HOLD_SECONDS_MIN:
            self._out.write(f"{now - self._last:.6f}\n")
        self._last = now
        self._loop.call_later(TICK_SECONDS, self.tick)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        del info
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_started = time.thread_time()
        else:
            self._last += time.thread_time() - self._collection_started


async def _start(self: broker_node.Node) -> tuple[str, int]:
    address = await _unmeasured_start(self)
    _Probe(Path(os.environ[VARIABLE]).open("a", buffering=1)).tick()  # noqa: SIM115 for good
    return address


_unmeasured_start = broker_node.Node.start

if __name__ == "__main__":
    broker_node.Node.start = _start  # type: ignore[method-assign]  # what it is for
    raise SystemExit(main())
