"""The stores that the contract is tested on, each with a way to run a test against it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import Buffer, ObjectStore
from quipu.runtime.objects.urls import open_store
from quipu.sim.world import Machine, World

Story = Callable[[ObjectStore], Awaitable[None]]
NOW_MS = 1_700_000_000_000


class StoreUnderTest(Protocol):
    """A store that exists once for each test."""

    versions_by_bytes: bool = False  # does it have the same version for the same bytes?
    keys_are_paths: bool = False  # may no key begin with another key and a slash?

    def run(self, story: Story) -> None:
        """Run a test with a client of the store; each call has a client of its own."""
        ...


class Bucket(StoreUnderTest):
    """A bucket of an S3 server; each client opens it anew, as another process would."""

    versions_by_bytes = True

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, story: Story) -> None:
        async def work() -> None:
            store = open_store(self.url, lambda: NOW_MS)
            try:
                await story(store)
            finally:
                await store.close()

        asyncio.run(work())


class Local(StoreUnderTest):
    """A directory; each client opens it anew, as another process would."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store"

    def run(self, story: Story) -> None:
        async def work() -> None:
            store = LocalStore(str(self.path))
            try:
                await story(store)
            finally:
                await store.close()

        asyncio.run(work())


class Memory(StoreUnderTest):
    """One store in memory, which is gone with its process: all clients are one."""

    def __init__(self, path: Path) -> None:
        del path
        self._store = MemoryStore(lambda: NOW_MS)

    def run(self, story: Story) -> None:
        async def work() -> None:
            await story(self._store)

        asyncio.run(work())


class Idle:
    """A program that does nothing."""

    async def start(self) -> None:
        """At once."""

    async def stop(self) -> None:
        """At once."""


class Simulated(StoreUnderTest):
    """The simulator's store without faults; each client is a process that is killed afterwards."""

    def __init__(self, path: Path) -> None:
        del path
        self.world = World(seed=1)
        self.machine: Machine = self.world.machine("n1", lambda _: Idle())

    def run(self, story: Story) -> None:
        done: list[bool] = []

        async def work() -> None:
            await story(self.machine.objects)
            done.append(True)

        self.machine.boot()
        self.world.run_on(self.machine, work, "test")
        self.world.run_until(lambda: bool(done), 600, "done")
        self.machine.kill()


STORES: dict[str, type[Local | Memory | Simulated]] = {
    "local": Local, "memory": Memory, "simulated": Simulated}


async def parts_of(*parts: Buffer) -> AsyncIterator[Buffer]:
    for part in parts:
        yield part
