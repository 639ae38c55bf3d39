"""What the diskless partitions of a node share."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from quipu.broker.diskless.deadlines import Deadlines
from quipu.broker.diskless.refreshes import Refreshes
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.reading.reader import DisklessReader
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.tiered_log import RemoteReads
from quipu.runtime.spawn import spawn


@dataclass(slots=True, kw_only=True)
class DisklessServices:
    """Writer, reader and control plane of one node."""

    writer: DisklessWriter
    reader: DisklessReader
    plane: ControlPlane
    refreshes: Refreshes
    remote_reads: RemoteReads | None = None  # None: this node has no access to a remote tier
    deadlines: Deadlines = field(default_factory=Deadlines)  # of appends
    early_size: int = 0  # bytes of appends that wait until the control plane knows their log
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        """Do something that ends by itself; `close` waits for it."""
        task = spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel what is under way."""
        self.deadlines.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
