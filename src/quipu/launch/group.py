"""Several nodes that are started together, and stopped when the `with` block ends.

    with NodeGroup() as nodes:
        nodes.start("a-0", start_command("--config", "a-0.properties"), Path("a-0.log"))
        nodes.await_ready()
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from quipu.launch.process import READY_LIMITS, STOP_LIMITS, NodeProcess
from quipu.launch.progress import WaitLimits
from quipu.model.settings_types import Address


class NodeGroup:
    """The processes of several nodes, in the order in which they were started."""

    def __init__(self) -> None:
        self._nodes: list[NodeProcess] = []

    def __iter__(self) -> Iterator[NodeProcess]:
        return iter(self._nodes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self, name: str, command: Sequence[str], log_path: Path, *,
        environment: Mapping[str, str] | None = None,
    ) -> NodeProcess:
        """Start one more node, without waiting for it.

        It gets a process group of its own: Ctrl-C at the terminal reaches only this process,
        which then sends each node one SIGTERM.  A node that gets two signals stops at once,
        without handing over its partitions.  It gets no session of its own: Linux shares CPU time
        out by session first, and a chain on two cores is 13 % slower that way.
        """
        node = NodeProcess(name, command, log_path, environment=environment, own_group=True)
        self._nodes.append(node)
        return node

    def await_ready(self, limits: WaitLimits = READY_LIMITS) -> list[Address]:
        """Wait until every node is ready; returns their addresses."""
        return [node.await_ready(limits) for node in self._nodes]

    def stop(self, limits: WaitLimits = STOP_LIMITS) -> None:
        """Send SIGTERM to all, and SIGKILL to those that hang; Ctrl-C sends SIGKILL at once."""
        with suppress(KeyboardInterrupt):
            for node in self._nodes:
                node.send(signal.SIGTERM)
            for node in self._nodes:
                node.await_end(limits)
        for node in self._nodes:
            node.send(signal.SIGKILL)
            node.close()
        self._nodes.clear()
