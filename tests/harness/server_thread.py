"""A thread with an event loop of its own, for servers that tests talk to without one.

    class Proxy(ServerThread):
        async def listen(self) -> list[asyncio.Server]: ...      # in the thread

    with Proxy() as proxy: ...                                    # its servers listen from here on
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

READY_SECONDS_MAX = 10


class ServerThread(ABC):
    """Runs servers in a thread until its `with` block ends."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    async def listen(self) -> list[asyncio.Server]:
        """Start the servers."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(READY_SECONDS_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(READY_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        servers = self.loop.run_until_complete(self.listen())
        self._ready.set()
        self.loop.run_forever()
        self.loop.run_until_complete(self._end(servers))
        self.loop.close()

    async def _end(self, servers: list[asyncio.Server]) -> None:
        for server in servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # for transports to close
