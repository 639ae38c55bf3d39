"""`quipu diskless objects` and `rebuild`, as a person runs them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quipu.cli.cluster import connect
from quipu.cli.main import main
from quipu.client.admin.topics import create_topic, describe_topics
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import open_store
from quipu.runtime.rng import SystemRng
from tests.diskless.histories import LOGS, TOPIC, History, read_log
from tests.harness.node import RunningNode
from tests.harness.postgres import PostgresServer
from tests.harness.s3_server import S3Server


class Site:
    """A store in a directory, and a control plane in a file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = folder / "objects"
        self.store.mkdir()
        self.file = folder / "plane.sqlite"
        self._capsys = capsys

    @property
    def urls(self) -> tuple[str, str]:
        """Of the control plane, and of the store."""
        return f"sqlite://{self.file}", f"file://{self.store}"

    def run(self, command: str, *words: str) -> tuple[int, str]:
        plane, store = self.urls
        code = main(["diskless", command, "--control-plane", plane, "--storage", store, *words])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def json(self, command: str, *words: str) -> list[dict[str, Any]]:
        text = self.run(command, "--json", *words)[1]
        return [json.loads(line) for line in text.splitlines()]

    def with_plane(self, call: Callable[[ControlPlane, ObjectStore], Awaitable[object]]) -> None:
        async def run() -> None:
            plane = open_control_plane(self.urls[0], rng=SystemRng())
            store = open_store(self.urls[1], SystemClock().now_ms)
            await plane.open()
            await call(plane, store)
            await plane.close()
            await store.close()

        asyncio.run(run())


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    return Site(tmp_path, capsys)


def fill(site: Site, *, ends_well: bool = True, topic_id: UUID = TOPIC) -> History:
    """Five objects with batches, and those of receipts."""
    history = History(topic_id)

    async def run() -> None:
        await history.begin()
        for number in range(5):
            await history.flush(number % 2, [history.new_batch(0, 2), history.new_batch(1, 1)])
            history.clock.advance_ms(100)
        if ends_well:
            await history.stop(0)
            await history.stop(1)
        store = open_store(site.urls[1], SystemClock().now_ms)
        for info in (await history.store.list()).objects:
            await store.put(info.key, [await history.store.get(info.key)])
        await store.close()

    asyncio.run(run())
    return history


def check_rebuilt(site: Site, history: History) -> None:
    """Rebuild, and read every record where it was."""
    code, out = site.run("rebuild")
    assert code == 0, out
    assert "restored 10 batches of 1 topic in 5 objects" in out
    assert "nothing is missing" in out

    async def check(plane: Any, store: Any) -> None:
        assert await plane.topics() == {TOPIC: (str(TOPIC), 2)}
        for log in LOGS[:2]:
            assert await read_log(store, plane, log) == await read_log(
                history.store, history.plane, log)

    site.with_plane(check)


def test_a_lost_control_plane_is_rebuilt(site: Site) -> None:
    """D37: the same records at the same offsets, in SQLite."""
    check_rebuilt(site, fill(site))


class RemoteSite(Site):
    """A store of an S3 server, and a control plane of a PostgreSQL server."""

    def __init__(self, capsys: pytest.CaptureFixture[str], plane: str, store: str) -> None:
        self._capsys = capsys
        self._urls = plane, store

    @property
    def urls(self) -> tuple[str, str]:
        return self._urls


def test_a_lost_database_is_rebuilt_from_a_bucket(
    capsys: pytest.CaptureFixture[str], s3_server: S3Server
) -> None:
    """D37, D38: with PostgreSQL and an S3 server as processes."""
    server = PostgresServer()  # of its own: a control plane that is rebuilt must be empty
    try:
        site = RemoteSite(capsys, server.url, s3_server.url(s3_server.bucket()))
        check_rebuilt(site, fill(site))
        code, out = site.run("rebuild")
        assert code == 1
        assert "only an empty one is rebuilt" in out
        assert [row["state"] for row in site.json("objects")].count("in use") == 5
    finally:
        server.stop()


def test_a_control_plane_with_records_is_not_touched(site: Site) -> None:
    """D37: it says what to do instead."""
    fill(site)
    assert site.run("rebuild")[0] == 0
    code, out = site.run("rebuild")
    assert code == 1
    assert "only an empty one is rebuilt, and nothing was changed" in out


def test_the_cluster_says_which_topics_exist(site: Site, tmp_path: Path) -> None:
    """D37: names by --bootstrap; a store of another cluster is refused, before anything changes."""
    with RunningNode(tmp_path / "data") as node:
        with connect(node.bootstrap) as cluster:
            create_topic(cluster, "orders", partitions=4)
            topic_id = describe_topics(cluster, ["orders"])["orders"].topic_id
        fill(site)
        code, out = site.run("rebuild", "--bootstrap", node.bootstrap)
        assert code == 1
        assert "no topic in the store exists in the cluster" in out
        fill(site, topic_id=topic_id)
        code, out = site.run("rebuild", "--bootstrap", node.bootstrap)
        assert code == 0, out
        assert f"1 topic left out that the cluster does not have: {TOPIC}" in out

    async def check(plane: Any, store: Any) -> None:
        assert await plane.topics() == {topic_id: ("orders", 4)}

    site.with_plane(check)


def test_what_is_lost_is_reported(site: Site) -> None:
    """D37: damaged objects and gaps by name; the exit code is 1."""
    fill(site, ends_well=False)
    victim = min(site.store.rglob("*-0000000000000001"))
    victim.write_bytes(victim.read_bytes()[:-1])
    code, out = site.run("rebuild")
    assert code == 1
    assert "damaged objects:" in out
    assert victim.name in out
    assert "placed without a receipt" in out
    site.file.unlink()
    found = site.json("rebuild")
    assert found[-1]["kind"] == "summary"
    assert found[-1]["damaged"] == 1
    assert found[-1]["without_receipt"] > 0


def test_objects_are_listed_with_what_the_control_plane_knows(site: Site) -> None:
    """D7: in use, marked, orphans, receipts, and what is missing."""
    fill(site)
    assert site.run("rebuild")[0] == 0
    states = [row["state"] for row in site.json("objects")]
    assert (states.count("in use"), states.count("receipts")) == (5, 2)
    code, out = site.run("objects")
    assert code == 0
    assert "7 objects of" in out

    rows = site.json("objects")

    async def change(plane: Any, store: Any) -> None:
        keys = sorted(row["key"] for row in rows if row["state"] == "in use")
        await plane.delete_records(LOGS[0], 4, 1000)
        await plane.delete_records(LOGS[1], 2, 1000)
        used = [each.key for each in await plane.objects() if each.marked_ms is None]
        await store.delete([used[0]])
        await plane.forget_objects([key for key in keys if key not in used][:1])

    site.with_plane(change)
    found = site.json("objects")
    by_state = {state: [row for row in found if row["state"] == state]
                for state in ("in use", "marked", "receipts", "new", "missing")}
    assert [len(rows) for rows in by_state.values()] == [2, 1, 2, 1, 1]
    assert by_state["in use"][0]["live"] > 0
    assert by_state["marked"][0]["runs"] == 0
    code, out = site.run("objects")
    assert code == 1
    assert "missing" in out


def test_places_that_do_not_exist_are_refused(site: Site) -> None:
    """D37: a wrong path makes no empty control plane."""
    code, out = site.run("objects")
    assert code == 1
    assert "there is no control plane" in out
    assert not site.file.exists()
    site.store = site.store / "other"
    code, out = site.run("rebuild")
    assert code == 1
    assert "is not a directory of this machine" in out
