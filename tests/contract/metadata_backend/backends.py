"""The backends that the contract is tested on; each test has keys of its own in them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from quipu.broker.metadata_topic.topic_backend import TopicBackend
from quipu.remote.metadata.storage.backend import (
    ExpectValue,
    KeyValue,
    MetadataStorageBackend,
    Operation,
)
from quipu.remote.metadata.storage.memory import MemoryBackend
from quipu.remote.metadata.storage.postgres import PostgresBackend
from quipu.remote.metadata.storage.sqlite import SqliteBackend
from quipu.runtime.rng import SystemRng
from tests.harness.here import NodeHere
from tests.harness.postgres import PostgresServer

NAMES = ("memory", "simple", "sqlite", "postgres", "topic")


class BackendUnderTest(Protocol):
    """A store that exists once for each test."""

    def open(self) -> MetadataStorageBackend:
        """A client of the store, as another process would open it."""
        ...


class Simple:
    """A user's backend: the required methods and no others, entries in no order."""

    def __init__(self, store: MemoryBackend) -> None:
        self._store = store

    async def create(self, key: str, value: bytes) -> None:
        await self._store.create(key, value)

    async def update(self, key: str, value: bytes) -> None:
        await self._store.update(key, value)

    async def get(self, key: str) -> bytes | None:
        return await self._store.get(key)

    async def get_like(self, key: str) -> Sequence[KeyValue]:
        return (await self._store.get_like(key))[::-1]

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        await self._store.remove_like(key, expected=expected)

    async def execute(self, operations: Sequence[Operation]) -> None:
        await self._store.execute(operations)

    async def close(self) -> None:
        """The store stays."""


class Memory:
    """One store in memory: all clients are one."""

    def __init__(self, *, is_simple: bool) -> None:
        store = MemoryBackend()
        self._client: MetadataStorageBackend = Simple(store) if is_simple else store

    def open(self) -> MetadataStorageBackend:
        return self._client


class Sqlite:
    """A file."""

    def __init__(self, path: Path) -> None:
        self.path = path / "metadata.sqlite"

    def open(self) -> MetadataStorageBackend:
        return SqliteBackend(str(self.path))


class Postgres:
    """A real server, which all tests share."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def open(self) -> MetadataStorageBackend:
        return PostgresBackend(self.server.url, SystemRng())


class Topic:
    """A topic of a node's own; the node runs while a client is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._node: NodeHere | None = None
        self._backend: TopicBackend | None = None
        self._clients = 0
        self._starting = asyncio.Lock()

    def open(self) -> MetadataStorageBackend:
        self._clients += 1
        return TopicClient(self)

    async def backend(self) -> TopicBackend:
        """The backend of the node, which is started if needed."""
        async with self._starting:
            if self._backend is None:
                self._node = await NodeHere(self._path).__aenter__()
                node = self._node.node
                self._backend = TopicBackend(
                    node.broker, None, partition_count=2, timeout_seconds=10.0,
                    is_registered=lambda _: True)
                assert node._replication is not None
                node._replication.watch(self._backend)
            return self._backend

    async def closed(self) -> None:
        self._clients -= 1
        if self._clients == 0 and self._backend is not None and self._node is not None:
            await self._backend.close()
            await self._node.__aexit__(None, None, None)
            self._node = self._backend = None


class TopicClient:
    """One of the clients of a `Topic`."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    async def create(self, key: str, value: bytes) -> None:
        await (await self._topic.backend()).create(key, value)

    async def update(self, key: str, value: bytes) -> None:
        await (await self._topic.backend()).update(key, value)

    async def get(self, key: str) -> bytes | None:
        return await (await self._topic.backend()).get(key)

    async def get_like(self, key: str) -> Sequence[KeyValue]:
        return await (await self._topic.backend()).get_like(key)

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        await (await self._topic.backend()).remove_like(key, expected=expected)

    async def execute(self, operations: Sequence[Operation]) -> None:
        await (await self._topic.backend()).execute(operations)

    async def floor(self, parent: str, key: str) -> KeyValue | None:
        return await (await self._topic.backend()).floor(parent, key)

    async def page(self, parent: str, after: str | None, limit: int) -> Sequence[KeyValue]:
        return await (await self._topic.backend()).page(parent, after, limit)

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        return await (await self._topic.backend()).get_many(keys)

    async def close(self) -> None:
        await self._topic.closed()
