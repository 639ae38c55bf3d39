"""Objects that no metadata refers to are found and deleted; all others stay."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

from quipu.broker.tiering.deleting import SegmentDeleter
from quipu.broker.tiering.orphan_sweep import MARKS_PREFIX
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.remote.segments.names import SegmentName
from quipu.runtime.objects.errors import StoreUnavailable
from tests.broker.tiering.test_tiering import (
    COUNT,
    fetched,
    filled,
    log_of,
    objects,
    read_all,
    tiered_node,
    until,
    values,
    write,
)
from tests.harness.here import NodeHere
from tests.looped import looped

GRACE = {"remote_log_orphan_grace_ms": "1000"}  # looked for four times a second
LONG_AGO = 1_000_000_000


def make_old(path: Path) -> None:
    os.utime(path, (LONG_AGO, LONG_AGO))


def plant(path: Path, topic_id: UUID, partition: int = 0) -> Path:
    """An object as a copy would have left it, long ago."""
    key = SegmentName(topic_id, partition, 7, uuid4()).key
    planted = path / "data" / "remote" / key.replace("/", "~/")
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_bytes(b"left behind")
    make_old(planted)
    return planted


def metadata_keys(path: Path) -> list[str]:
    """All keys in the metadata's storage."""
    with sqlite3.connect(path / "data" / "remote-metadata.sqlite") as connection:
        (table,) = next(connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%value%'"))
        return [str(key) for (key, *_) in connection.execute(f"SELECT * FROM {table}")]


@looped
async def test_an_orphan_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    """R15: broker.tiering.O1: of a partition's objects, those in no metadata; however old others
    are, and whatever else is in the store.
    """
    async with tiered_node(tmp_path, **GRACE) as node:
        log = await filled(node)
        kept = objects(tmp_path)
        for each in kept:
            make_old(each)
        orphan = plant(tmp_path, log.topic_id)
        foreign = orphan.with_name("notes.txt")
        foreign.write_bytes(b"of an operator")
        make_old(foreign)
        await until(lambda: not orphan.exists())
        await until(lambda: node.node.stats.remote.orphans_deleted == 1)
        assert set(kept) <= set(objects(tmp_path))
        assert foreign.exists()
        assert await read_all(node, 0, COUNT) == values(range(COUNT))


@looped
async def test_a_copy_that_is_under_way_is_no_orphan(tmp_path: Path) -> None:
    """R15: broker.tiering.O2, whatever the store's clock says about its age."""
    async with tiered_node(tmp_path, **GRACE) as node:
        log = await filled(node)
        led = next(iter(node.node._tiering.log._tasks.values())).led  # type: ignore[union-attr]
        copied = plant(tmp_path, log.topic_id)
        led.being_copied.add(UUID(copied.stem[21:]))
        orphan = plant(tmp_path, log.topic_id)
        await until(lambda: not orphan.exists())
        assert copied.exists()
        led.being_copied.clear()
        await until(lambda: not copied.exists())


@looped
async def test_lost_metadata_makes_no_orphans(tmp_path: Path) -> None:
    """R15: broker.tiering.O4: the metadata's file is gone, the log knows better; it is restored,
    and everything is read as before.
    """
    async with tiered_node(tmp_path) as node:
        await filled(node)
    kept = set(objects(tmp_path))
    for each in kept:
        make_old(each)
    (tmp_path / "aside").mkdir()
    for path in (tmp_path / "data").glob("remote-metadata.sqlite*"):
        path.rename(tmp_path / "aside" / path.name)
    async with tiered_node(tmp_path, **GRACE) as node:
        await until(lambda: node.node.stats.remote.task_errors > 0)
        assert (await fetched(node, 0))[0] == Code.KAFKA_STORAGE_ERROR
        assert set(objects(tmp_path)) == kept
    for path in (tmp_path / "data").glob("remote-metadata.sqlite*"):
        path.unlink()
    for path in (tmp_path / "aside").iterdir():
        path.rename(tmp_path / "data" / path.name)
    async with tiered_node(tmp_path, **GRACE) as node:
        assert await read_all(node, 0, COUNT) == values(range(COUNT))


@looped
async def test_topics_that_do_not_exist_leave_nothing(tmp_path: Path) -> None:
    """R12, R15: broker.tiering.O3: the leader never came to delete it; the controller's node does,
    objects and metadata.
    """
    async with tiered_node(tmp_path, **GRACE) as node:
        log = await filled(node)
        dead = str(log.topic_id)
        tiering = node.node._tiering
        assert tiering is not None

        def nothing(topic: object) -> Iterator[None]:
            del topic
            tiering.log._tasks.clear()
            yield

        tiering.log.on_topic_deleted = nothing  # type: ignore[method-assign]
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        assert any(dead in str(each) for each in objects(tmp_path))
        assert any(dead in key for key in metadata_keys(tmp_path))
        for each in objects(tmp_path):
            make_old(each)
        unknown = plant(tmp_path, uuid4())
        await until(lambda: not objects(tmp_path) and not any(
            dead in key for key in metadata_keys(tmp_path)))
        assert not unknown.exists()


@looped
async def test_a_store_of_two_clusters_is_left_alone(tmp_path: Path) -> None:
    """R15: what a node does not know may be of another cluster, which has left its id."""
    mark = tmp_path / "data" / "remote" / MARKS_PREFIX.replace("/", "~") / "another-cluster"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(b"")
    async with tiered_node(tmp_path, **GRACE) as node:
        log = await filled(node)
        of_another = plant(tmp_path, uuid4())
        for _ in range(2):
            orphan = plant(tmp_path, log.topic_id)
            await until(lambda orphan=orphan: not orphan.exists())  # type: ignore[misc]
        assert of_another.exists()
        mark.unlink()
        await until(lambda: not of_another.exists())


async def without_tier(node: NodeHere) -> None:
    await node.alter("t", remote_storage_enable="false", remote_log_delete_on_disable="true")


@looped
async def test_a_tier_that_comes_back_is_not_believed_to_be_full(tmp_path: Path) -> None:
    """R13, R15: broker.tiering.P4: what was copied before the topic lost its tier is gone there; it
    is copied again before it is deleted locally.
    """
    async with tiered_node(tmp_path) as node:
        log = await filled(node, local_retention_bytes="80000")
        await without_tier(node)
        await until(lambda: not log.tier.has_copies and not objects(tmp_path))
        start = log.log_start_offset
        assert 0 < start == log.local_start_offset < COUNT
        await node.alter("t", remote_storage_enable="true", local_retention_bytes="16384")
        await until(lambda: log.local_start_offset > COUNT - 40)
        assert log.log_start_offset == start
        assert await read_all(node, start, COUNT) == values(range(start, COUNT))


@looped
async def test_a_dropped_tier_is_deleted_by_the_next_leader(tmp_path: Path) -> None:
    """R15: broker.tiering.P3: the node ends after the log forgot the tier, before it is deleted."""
    really = SegmentDeleter.delete_partition

    async def fails(*_: object) -> None:
        raise StoreUnavailable("not now")

    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        SegmentDeleter.delete_partition = fails  # type: ignore[method-assign]
        try:
            await without_tier(node)
            await until(lambda: not log.tier.has_copies)
        finally:
            SegmentDeleter.delete_partition = really  # type: ignore[method-assign]
            node.node._tiering.log._tasks.clear()  # type: ignore[union-attr]
    assert objects(tmp_path)
    async with tiered_node(tmp_path, **GRACE) as node:
        await until(lambda: not objects(tmp_path))
        log = log_of(node)
        await write(node, values([COUNT]))
        assert await read_all(node, log.log_start_offset, COUNT + 1) == values(
            range(log.log_start_offset, COUNT + 1))
        await until(lambda: not any(
            str(log.topic_id) in key for key in metadata_keys(tmp_path)))


@looped
async def test_a_deletion_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """R12, R15: broker.tiering.D2, broker.tiering.D3: the store fails while a topic is deleted."""
    async with tiered_node(tmp_path) as node:
        log = await filled(node)
        storage = node.node._tiering._storage  # type: ignore[union-attr]
        really, calls = storage.delete_log_segment_data, 0

        async def sometimes(segment: object) -> None:
            nonlocal calls
            calls += 1
            if calls % 3 == 1:
                raise StoreUnavailable("not now")
            await really(segment)  # type: ignore[arg-type]

        storage.delete_log_segment_data = sometimes  # type: ignore[method-assign, assignment]
        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])
        await until(lambda: not objects(tmp_path) and not any(
            str(log.topic_id) in key for key in metadata_keys(tmp_path)))
        assert node.node.stats.remote.delete_errors > 0
