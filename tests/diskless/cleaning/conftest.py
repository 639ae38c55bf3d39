"""The stores and control planes that the clean-up is tested on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from quipu.diskless.cleaning import deletion, orphans, receipts, retention, rewriting
from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryTables
from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import open_store
from quipu.runtime.rng import SystemRng
from tests.contract.control_plane.planes import postgres_url
from tests.diskless.cleaning.world import LIMITS, CleaningWorld
from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import S3Server

KINDS = ("memory", "sqlite", "postgres")
Story = Callable[[CleaningWorld], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories do not wait between the requests of a pass."""
    for module, name in ((retention, "PAUSE_SECONDS"), (deletion, "PAUSE_SECONDS"),
                         (orphans, "PAGE_PAUSE_SECONDS"), (receipts, "PAUSE_SECONDS"),
                         (rewriting, "PAUSE_SECONDS"), (rewriting, "RETRY_SECONDS")):
        monkeypatch.setattr(module, name, 0)


@asynccontextmanager
async def _opened(
    plane: ControlPlane, store: ObjectStore, seed: int, limits: CleaningLimits
) -> AsyncIterator[CleaningWorld]:
    await plane.open()
    try:
        yield CleaningWorld(store, plane, seed=seed, limits=limits)
    finally:
        await plane.close()
        await store.close()


class Worlds:
    """Runs stories on a store in a directory, and on one kind of control plane."""

    def __init__(
        self, kind: str, path: Path, server: PostgresServer | None = None,
        bucket_url: str | None = None,
    ) -> None:
        self.kind = kind
        self._path = path
        self._server = server
        self._bucket_url = bucket_url

    def __call__(
        self, story: Story, *, seed: int = 0, limits: CleaningLimits = LIMITS
    ) -> None:
        async def work() -> None:
            async with _opened(self._plane(seed), self._store(seed), seed, limits) as world:
                await story(world)

        asyncio.run(work())

    def _store(self, seed: int) -> ObjectStore:
        if self._bucket_url is not None:
            return open_store(self._bucket_url, SystemClock().now_ms)
        return LocalStore(str(self._path / f"objects-{seed}"))

    def _plane(self, seed: int) -> ControlPlane:
        match self.kind:
            case "sqlite":
                return SqliteControlPlane(str(self._path / f"plane-{seed}"))
            case "postgres":
                assert self._server is not None
                return open_control_plane(postgres_url(self._server), rng=SystemRng())
            case _:
                return MemoryControlPlane(MemoryTables(uuid4()))


@pytest.fixture(params=KINDS)
def run_story(request: pytest.FixtureRequest, tmp_path: Path) -> Worlds:
    """Runs a story on each kind of control plane."""
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    return Worlds(request.param, tmp_path, server)


@pytest.fixture
def run_real_story(
    tmp_path: Path, postgres_server: PostgresServer, s3_server: S3Server
) -> Worlds:
    """Runs a story on a bucket of an S3 server, and on PostgreSQL."""
    return Worlds("postgres", tmp_path, postgres_server, s3_server.url(s3_server.bucket()))
