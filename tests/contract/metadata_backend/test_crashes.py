"""Processes and servers that end in the middle of a write: each write is seen whole, or not."""

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from quipu.remote.metadata import errors
from quipu.remote.metadata.storage import postgres, sqlite
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    ExpectValue,
    MetadataStorageBackend,
    UpdateKey,
)
from quipu.remote.metadata.storage.connector import UrlConnector
from quipu.runtime.databases import postgres as connections
from quipu.runtime.rng import SystemRng
from tests.harness.killed_writer import KILL_AFTER_SECONDS, kill_writer
from tests.harness.postgres import PostgresServer
from tests.looped import looped


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/metadata.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url


def test_a_writer_that_is_killed_leaves_whole_writes(url: str) -> None:
    """R6, R12: remote.B1: kill -9 in the middle; every write that returned is there."""
    for seconds in KILL_AFTER_SECONDS:
        key = f"{uuid4()}/0"
        acknowledged = kill_writer(Path(__file__).with_name("writer.py"), url, key,
                                   after_seconds=seconds)
        asyncio.run(_check(url, key, acknowledged))


async def _check(url: str, key: str, acknowledged: int) -> None:
    backend = await UrlConnector({"metadata.storage.url": url}).open_backend()
    stored = {each.key.removeprefix(key): each.value for each in await backend.get_like(key)}
    last = int(stored.pop("/last"))
    assert acknowledged <= last <= acknowledged + 1
    assert set(stored) == {f"/{half}/{n:09d}" for half in "ab" for n in range(last + 1)}
    await backend.create(f"{key}/after", b"writes go on")
    await backend.close()


@looped
async def test_connections_that_are_cut_are_replaced(postgres_server: PostgresServer) -> None:
    """R7: an idle connection that was ended costs a retry, and no error."""
    backend = postgres.PostgresBackend(postgres_server.url, SystemRng())
    key = f"{uuid4()}/0"
    await asyncio.gather(*(backend.create(f"{key}/{n}", b"1") for n in range(8)))
    await postgres_server.cut_connections()
    await backend.create(f"{key}/after", b"1")
    await postgres_server.cut_connections()
    assert await backend.get(f"{key}/after") == b"1"
    await backend.close()


@looped
async def test_a_server_that_crashes_loses_no_write_that_returned(
    postgres_server: PostgresServer,
) -> None:
    """R6, R7: remote.B1, remote.B5: writes go on after its restart; each is whole, or not there."""
    backend = postgres.PostgresBackend(postgres_server.url, SystemRng())
    key = f"{uuid4()}/0"
    stored: list[int] = []

    async def write() -> None:
        for number in count():
            with suppress(errors.OutcomeUnknown):
                await backend.execute([CreateKey(f"{key}/a/{number}", b"1"),
                                       CreateKey(f"{key}/b/{number}", b"1")])
                stored.append(number)

    writing = asyncio.get_running_loop().create_task(write())
    while len(stored) < 20:
        await asyncio.sleep(0.005)
    await asyncio.to_thread(postgres_server.crash)
    await asyncio.sleep(0.1)
    postgres_server.start()
    before = len(stored)
    while len(stored) < before + 3:
        await asyncio.sleep(0.005)
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing

    found = {each.key.removeprefix(key) for each in await backend.get_like(key)}
    halves = [{name[3:] for name in found if name.startswith(f"/{half}/")} for half in "ab"]
    assert halves[0] == halves[1]
    assert {str(n) for n in stored} <= halves[0]
    await backend.close()


@looped
async def test_a_commit_whose_response_is_lost_has_an_unknown_outcome(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2, R7: remote.B5: and the same create again is a retry, whatever the outcome was."""
    backend = postgres.PostgresBackend(postgres_server.url, SystemRng())
    key = f"{uuid4()}/0"
    await backend.create(f"{key}/header", b"1")
    planned = postgres.plan_operations

    def cut_while_planning(*arguments: object) -> object:
        with psycopg.connect(postgres_server.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE state = 'idle in transaction'")
        monkeypatch.undo()
        return planned(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(postgres, "plan_operations", cut_while_planning)
    operations = [ExpectValue(f"{key}/header", b"1"), CreateKey(f"{key}/a", b"1")]
    with pytest.raises(errors.OutcomeUnknown, match="may have been carried out"):
        await backend.execute(operations)
    await backend.execute(operations)
    await backend.execute(operations)
    assert await backend.get(f"{key}/a") == b"1"
    await backend.close()


@looped
async def test_a_server_that_is_not_there_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: after a bounded time, with the reason, and without the password."""
    monkeypatch.setattr(connections, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 1)
    backend = postgres.PostgresBackend(
        f"postgresql://quipu:s3cret@/db?host={tmp_path}", SystemRng())
    with pytest.raises(errors.BackendUnavailable, match="check the server") as raised:
        await backend.create("a/b", b"1")
    assert not isinstance(raised.value, errors.OutcomeUnknown)
    assert "s3cret" not in str(raised.value)
    assert "No such file" in str(raised.value)
    await backend.close()
    with pytest.raises(errors.MetadataClosed):
        await backend.get("a/b")


@looped
async def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    """R7: and one that is no database is corrupt; neither was written to."""
    missing = sqlite.SqliteBackend(str(tmp_path / "nowhere" / "metadata.sqlite"))
    with pytest.raises(errors.BackendUnavailable, match="check the file"):
        await missing.create("a/b", b"1")
    await missing.close()
    with pytest.raises(errors.MetadataClosed):
        await missing.get("a/b")

    (tmp_path / "text").write_bytes(b"no database" * 1000)
    text = sqlite.SqliteBackend(str(tmp_path / "text"))
    with pytest.raises(errors.CorruptMetadata, match="restore"):
        await text.get("a/b")
    await text.close()
    assert (tmp_path / "text").read_bytes() == b"no database" * 1000


@looped
async def test_a_cancelled_write_does_not_disturb_the_next(url: str) -> None:
    """R2, R7: the connection is not used by two at once."""
    backend: MetadataStorageBackend = await UrlConnector(
        {"metadata.storage.url": url}).open_backend()
    key = f"{uuid4()}/0"
    await backend.create(f"{key}/n", b"0")
    for n in range(10):
        write = asyncio.get_running_loop().create_task(
            backend.execute([UpdateKey(f"{key}/n", b"x"), CreateKey(f"{key}/{n}", b"")]))
        await asyncio.sleep(0.0004 * n)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        await backend.update(f"{key}/n", b"%d" % n)
        assert await backend.get(f"{key}/n") == b"%d" % n
    await backend.close()
