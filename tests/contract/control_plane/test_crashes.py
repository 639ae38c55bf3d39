"""Processes and servers that end in the middle of a commit: it is there whole, or not at all."""

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from quipu.diskless.control_plane import listening, postgres_pool
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.postgres import PostgresControlPlane
from quipu.diskless.control_plane.postgres_values import COMMIT, commit_arguments
from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.errors import (
    CommitOutcomeUnknown,
    ControlPlaneClosed,
    ControlPlaneUnavailable,
    UnusableControlPlane,
)
from quipu.diskless.values import LogKey, NewObject
from quipu.model.ids import Offset
from quipu.runtime.databases import postgres as connections
from quipu.runtime.rng import SystemRng
from tests.contract.control_plane.planes import (
    NOW,
    ByUrl,
    accepted,
    all_runs,
    batch,
    committed,
    duplicate,
    opened,
    postgres_url,
    sqlite_url,
    stored,
    with_logs,
)
from tests.harness.killed_writer import KILL_AFTER_SECONDS, kill_writer
from tests.harness.postgres import PostgresServer
from tests.looped import looped

SETTLE_ATTEMPTS = 50
WAIT_SECONDS = 30.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return postgres_url(request.getfixturevalue("postgres_server"))


def test_a_writer_that_is_killed_leaves_whole_commits(url: str) -> None:
    """D2, D33: diskless.C2: kill -9 in the middle; every commit that returned is there."""
    for seconds in KILL_AFTER_SECONDS:
        topic_id = asyncio.run(_create(url))
        acknowledged = kill_writer(Path(__file__).with_name("writer.py"), url,
                                   str(topic_id.topic_id), after_seconds=seconds)
        asyncio.run(_check(url, topic_id, acknowledged))


async def _create(url: str) -> LogKey:
    async with with_logs(ByUrl(url), 2) as (_, [log, _]):
        return log


async def _check(url: str, log: LogKey, acknowledged: int) -> None:
    async with opened(ByUrl(url)) as plane:
        before: object = None
        while (bounds := await plane.bounds([log])) != before:
            before = bounds
            await asyncio.sleep(0.2)  # the server may still carry out the last commit
        for _ in range(SETTLE_ATTEMPTS):
            runs = [await all_runs(plane, LogKey(log.topic_id, partition)) for partition in (0, 1)]
            if len(runs[0]) == len(runs[1]):
                break
            await asyncio.sleep(0.1)
        assert len(runs[0]) == len(runs[1])
        assert acknowledged < len(runs[0]) <= acknowledged + 2
        assert [run.key for run in runs[0]] == [run.key for run in runs[1]]
        sent = len(runs[0])
        again = [batch(log, 2, producer=(1, 0, 2 * sent)), batch(log, 2, producer=(
            1, 0, 2 * sent - 2))]
        assert await committed(plane, *again) == [accepted(2 * sent), duplicate(2 * sent - 2)]


@looped
async def test_a_server_that_crashes_loses_no_commit_that_returned(
    postgres_server: PostgresServer,
) -> None:
    """D2, D33: diskless.C2: commits go on after its restart, and watching does."""
    under_test = ByUrl(postgres_url(postgres_server))
    async with with_logs(under_test, 2) as (plane, [a, b]), opened(under_test) as other:
        done: list[NewObject] = []
        is_ending: list[bool] = []
        heard: list[tuple[LogKey | None, int]] = []
        other.watch(lambda log, offset: heard.append((log, offset)))

        async def write() -> None:
            for number in count():
                if is_ending:
                    return
                new = stored(batch(a, 1, producer=(1, 0, number)), batch(b, 1))
                while True:
                    with suppress(CommitOutcomeUnknown):
                        found = await plane.commit(new, NOW)
                        break
                assert found == [accepted(number)] * 2
                done.append(new)

        writing = asyncio.get_running_loop().create_task(write())
        await _until(lambda: len(done) >= 20)
        await asyncio.to_thread(postgres_server.crash)
        await asyncio.sleep(0.1)
        postgres_server.start()
        before = len(done)
        await _until(lambda: len(done) >= before + 3 or writing.done())
        is_ending.append(True)
        await writing
        keys = [run.key for run in await all_runs(plane, a)]
        assert keys == [run.key for run in await all_runs(plane, b)]
        assert keys[:len(done)] == [new.key for new in done]
        await _until(lambda: heard and heard[-1][0] is not None)
        assert [log for log, _ in heard].count(None) >= 2, "also after the restart"
        last = len(heard)
        await committed(plane, batch(a))
        await _until(lambda: any(log == a for log, _ in heard[last:]))


async def _until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)


@looped
async def test_commits_of_another_node_are_heard(postgres_server: PostgresServer) -> None:
    """D5: diskless.C9: of more logs than one notification holds, each with its offset."""
    under_test = ByUrl(postgres_url(postgres_server))
    async with with_logs(under_test, 350) as (plane, logs), opened(under_test) as other:
        heard: dict[LogKey | None, int] = {}
        own: list[LogKey | None] = []
        other.watch(heard.__setitem__)
        plane.watch(lambda log, _: own.append(log))
        await _until(lambda: None in heard and None in own)
        await committed(plane, *(batch(log, 1 + n % 3) for n, log in enumerate(logs)))
        await _until(lambda: len(heard) == 351)
        assert [heard[log] for log in logs] == [1 + n % 3 for n in range(350)]
        await asyncio.sleep(0.05)
        assert sorted(log for log in own if log is not None) == sorted(logs), "each once"


@looped
async def test_a_commit_that_nobody_told_of_is_noticed(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5, D33: diskless.C9: its node was killed between the commit and the notification."""
    monkeypatch.setattr(listening, "LOOK_SECONDS", 0.05)
    under_test = ByUrl(postgres_url(postgres_server))
    async with with_logs(under_test) as (plane, [log]), opened(under_test) as other:
        assert isinstance(plane, PostgresControlPlane)
        heard: list[LogKey | None] = []
        other.watch(lambda log, _: heard.append(log))
        await _until(lambda: heard == [None])
        await committed(plane, batch(log))
        await _until(lambda: heard == [None, log])
        await plane._pool.write(
            COMMIT, commit_arguments(stored(batch(log), batch(log)), NOW))
        await _until(lambda: heard == [None, log, None])
        await asyncio.sleep(0.5)
        assert heard == [None, log, None], "once"


@looped
async def test_a_strange_notification_makes_listeners_look_again(
    postgres_server: PostgresServer,
) -> None:
    """D5: diskless.C9: anybody may send one."""
    url = postgres_url(postgres_server)
    async with with_logs(ByUrl(url)) as (plane, _):
        heard: list[LogKey | None] = []
        plane.watch(lambda log, _: heard.append(log))
        await _until(lambda: heard == [None])
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            for payload in ("", "x", "x a:b:c", "x " + "1:2:3," * 50):
                await connection.execute("SELECT pg_notify(diskless_channel_1(), %s)", (payload,))
        await _until(lambda: heard == [None] * 5)


@looped
async def test_connections_that_are_cut_are_replaced(postgres_server: PostgresServer) -> None:
    """D2: an idle connection that was ended costs a repetition, and no error."""
    under_test = ByUrl(postgres_url(postgres_server))
    async with with_logs(under_test) as (plane, [log]):
        await asyncio.gather(*(committed(plane, batch(log)) for _ in range(8)))
        for _ in range(2):
            await postgres_server.cut_connections()
            await asyncio.gather(*(committed(plane, batch(log)) for _ in range(8)))
        assert (await all_runs(plane, log))[-1].end_offset == 24


@looped
async def test_an_answer_that_is_lost_is_asked_for_again(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: diskless.C2: the commit was carried out; with no time left its outcome is unknown."""
    url = postgres_url(postgres_server)
    async with with_logs(ByUrl(url)) as (plane, [log]):
        assert isinstance(plane, PostgresControlPlane)
        fetched, lost = postgres_pool._fetched, list[str]()

        def losing(statement: str, values: object) -> connections.Work[list[postgres_pool.Row]]:
            async def fetch(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> list[
                    postgres_pool.Row]:
                rows = await fetched(statement, values)(connection)  # type: ignore[arg-type]  # on
                if statement in lost:
                    return rows
                lost.append(statement)
                await connection.close()
                raise psycopg.OperationalError("the connection is lost")

            return fetch

        monkeypatch.setattr(postgres_pool, "_fetched", losing)
        new = stored(batch(log, 3))
        assert await plane.commit(new, NOW) == [accepted(0)]
        assert await committed(plane, batch(log)) == [accepted(3)]
        lost.clear()
        monkeypatch.setattr(connections, "RETRY_SECONDS", -1.0)
        new = stored(batch(log, 3))
        with pytest.raises(CommitOutcomeUnknown, match="may have been carried out"):
            await plane.commit(new, NOW)
        assert await plane.commit(new, NOW) == [accepted(4)]


@looped
async def test_a_server_that_is_not_there_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: after a bounded time, with the reason, and without the password."""
    monkeypatch.setattr(connections, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 1)
    plane = PostgresControlPlane(f"postgresql://quipu:s3cret@/db?host={tmp_path}", SystemRng())
    with pytest.raises(ControlPlaneUnavailable, match="check the server") as raised:
        await plane.open()
    assert not isinstance(raised.value, CommitOutcomeUnknown)
    assert "s3cret" not in str(raised.value)
    assert "No such file" in str(raised.value)
    await plane.close()
    with pytest.raises(ControlPlaneClosed):
        await plane.topics()


@looped
async def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    """D2: and one that is no database is unusable; neither was written to."""
    missing = SqliteControlPlane(str(tmp_path / "nowhere" / "control-plane.sqlite"))
    with pytest.raises(ControlPlaneUnavailable, match="check the file"):
        await missing.open()
    await missing.close()
    with pytest.raises(ControlPlaneClosed):
        await missing.topics()
    (tmp_path / "text").write_bytes(b"no database" * 1000)
    text = SqliteControlPlane(str(tmp_path / "text"))
    with pytest.raises(UnusableControlPlane, match="rebuild"):
        await text.open()
    await text.close()
    assert (tmp_path / "text").read_bytes() == b"no database" * 1000


@looped
async def test_a_cancelled_commit_does_not_disturb_the_next(url: str) -> None:
    """D2: it is carried out to its end; the connection is not used by two at once."""
    async with with_logs(ByUrl(url)) as (plane, [log]):
        for n in range(10):
            commit = asyncio.get_running_loop().create_task(committed(plane, batch(log)))
            await asyncio.sleep(0.0004 * n)
            commit.cancel()
            await asyncio.gather(commit, return_exceptions=True)
            await committed(plane, batch(log))
    async with opened(ByUrl(url)) as plane:  # closing the first has waited for all of them
        assert 10 <= (await all_runs(plane, log))[-1].end_offset <= 20


@looped
async def test_nodes_that_start_at_once_make_one_schema(url: str) -> None:
    """D2: of eight planes that open an empty database, each finds it ready."""
    planes: list[ControlPlane] = [open_control_plane(url, rng=SystemRng()) for _ in range(8)]
    await asyncio.gather(*(plane.open() for plane in planes))
    log = LogKey(uuid4(), 0)
    await planes[0].create_logs(log.topic_id, "topic", 1)
    await asyncio.gather(*(committed(plane, batch(log)) for plane in planes))
    [bounds] = await planes[7].bounds([log])
    assert bounds is not None
    assert bounds.high_watermark == Offset(8)
    for plane in planes:
        await plane.close()


@looped
async def test_a_newer_schema_is_refused(url: str) -> None:
    """D2: with what to do; nothing is changed."""
    async with with_logs(ByUrl(url)) as (plane, _):
        if isinstance(plane, SqliteControlPlane):
            await plane._write(lambda c: c.execute("INSERT INTO diskless_versions VALUES (99)"))
        else:
            assert isinstance(plane, PostgresControlPlane)
            await plane._pool.write("INSERT INTO diskless_versions VALUES (%s)", (99,))
        newer = open_control_plane(url, rng=SystemRng())
        with pytest.raises(UnusableControlPlane, match=r"version 99.*run the newer program"):
            await newer.open()
        await newer.close()
