"""Brokers over one store: managers that share a backend which can fail on demand."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from quipu.remote.metadata.errors import BackendUnavailable, OutcomeUnknown
from quipu.remote.metadata.interface import ManagerContext
from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.metadata.storage.backend import (
    ExpectValue,
    KeyValue,
    MetadataStorageBackend,
    Operation,
)
from quipu.runtime.rng import SystemRng


class FailingBackend:
    """A backend that counts its calls, and whose next writes fail as they are told to.

        refuse   nothing is written, and the caller knows
        lose     nothing is written, and the caller does not know
        cut      it is written, and the caller does not know
        late     it is written after the caller was told that it does not know
    """

    def __init__(self, inner: MetadataStorageBackend) -> None:
        self.inner = inner
        self.faults: list[str] = []  # of the next writes; "" is none
        self.calls = 0
        self.operations = 0
        self.entries_read = 0
        self._late: list[Sequence[Operation]] = []

    async def create(self, key: str, value: bytes) -> None:
        await self.inner.create(key, value)

    async def update(self, key: str, value: bytes) -> None:
        await self.inner.update(key, value)

    async def get(self, key: str) -> bytes | None:
        self.calls += 1
        self.entries_read += 1
        return await self.inner.get(key)

    async def get_like(self, key: str) -> Sequence[KeyValue]:
        self.calls += 1
        found = await self.inner.get_like(key)
        self.entries_read += len(found)
        return found

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        self.calls += 1
        await self._faulty(lambda: self.inner.remove_like(key, expected=expected), None)

    async def execute(self, operations: Sequence[Operation]) -> None:
        self.calls += 1
        self.operations += len(operations)
        await self._faulty(lambda: self.inner.execute(operations), operations)

    async def _faulty(
        self, write: Callable[[], object], operations: Sequence[Operation] | None
    ) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refuse":
            raise BackendUnavailable("refused")
        if fault in ("", "cut"):
            await write()  # type: ignore[misc]  # a coroutine
        if fault == "late" and operations is not None:
            self._late.append(operations)
        if fault:
            raise OutcomeUnknown(fault)

    async def deliver_late(self) -> None:
        """Carry out the writes that are late; what they expect may no longer be there."""
        late, self._late = self._late, []
        for operations in late:
            with suppress(Exception):
                await self.inner.execute(operations)

    async def close(self) -> None:
        """The store stays for others."""


class OrderedFailingBackend(FailingBackend):
    """The same over a backend that finds entries by their order."""

    async def floor(self, parent: str, key: str) -> KeyValue | None:
        self.calls += 1
        self.entries_read += 1
        return await self.inner.floor(parent, key)  # type: ignore[attr-defined]  # it has one

    async def page(self, parent: str, after: str | None, limit: int) -> Sequence[KeyValue]:
        self.calls += 1
        found: Sequence[KeyValue] = await self.inner.page(  # type: ignore[attr-defined]
            parent, after, limit)
        self.entries_read += len(found)
        return found

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        self.calls += 1
        self.entries_read += len(keys)
        found: dict[str, bytes] = await self.inner.get_many(keys)  # type: ignore[attr-defined]
        return found


def failing(inner: MetadataStorageBackend) -> FailingBackend:
    return (OrderedFailingBackend if hasattr(inner, "floor") else FailingBackend)(inner)


async def manager_of(
    backend: MetadataStorageBackend, broker_id: int = 0, timeout_ms: int = 30_000,
    cluster_id: str = "",
) -> StoredRemoteLogMetadata:
    """A broker's manager over `backend`."""
    manager = StoredRemoteLogMetadata(ManagerContext(
        broker_id=broker_id, rng=SystemRng(), schemes={"topic": lambda: backend},
        config={"metadata.storage.url": "topic:", "metadata.storage.timeout.ms": str(timeout_ms)},
        cluster_id=lambda: cluster_id))
    await manager.open()
    return manager
