"""A topic of a single node becomes diskless: what its partition, its producers and clients see."""

from pathlib import Path
from typing import Any

import pytest

from quipu.broker.diskless import migration as migration_module
from quipu.broker.diskless.migration import Migrations
from quipu.broker.diskless.opening import Diskless
from quipu.diskless.control_plane.interface import AdoptedLog
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.values import LogKey
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from quipu.wire.messages.k10006_migrate_topic import MigrateTopicRequest
from tests.broker.diskless.parts import (
    diskless_node,
    list_offset,
    partition,
    put,
    read_all,
    topic_uuid,
    until,
    until_true,
)
from tests.harness.here import NodeHere, Peer
from tests.looped import looped

DESCRIBE, BEGIN, CANCEL = range(3)
NOT_BEGUN, SEALING, COPYING, SWITCHING, DONE = range(5)
PRODUCER = {"producer_id": 77, "producer_epoch": 0}


def node_here(path: Path, **overrides: str) -> NodeHere:
    return diskless_node(path, remote_log_storage_system_enable="true",
                         remote_log_manager_task_interval_ms="100", **overrides)


async def migrate(peer: Peer, action: int, topic: str = "t") -> Any:
    return await peer.ask(MigrateTopicRequest(name=topic, action=action), 0)


async def steps(peer: Peer) -> set[int]:
    response = await migrate(peer, DESCRIBE)
    assert response.error_code == 0, response
    return {each.step for each in response.partitions}


async def migrated(peer: Peer) -> None:
    response = await migrate(peer, BEGIN)
    assert response.error_code == 0, response

    async def is_done() -> bool:
        return await steps(peer) == {DONE}

    await until_true(is_done)


@looped
async def test_producers_go_on_where_they_were(tmp_path: Path) -> None:
    """D30: a batch that is repeated after the switch is a duplicate, with its first offset; the
    next sequence is taken, and one that leaves out some is not (broker.diskless.M1).
    """
    async with node_here(tmp_path) as node, node.connect() as peer:
        await node.create("t", 2, remote_storage_enable="true")
        for number in range(3):
            part = await put(peer, "t", b"%d" % number, base_sequence=number, **PRODUCER)
            assert (part.error_code, part.base_offset) == (0, number)
        await migrated(peer)
        await until(lambda: (found := partition(node)) is not None and found.is_known)

        again = await put(peer, "t", b"2", base_sequence=2, **PRODUCER)
        assert (again.error_code, again.base_offset) == (0, 2)
        skipped = await put(peer, "t", b"9", base_sequence=9, **PRODUCER)
        assert skipped.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = await put(peer, "t", b"3", base_sequence=3, **PRODUCER)
        assert (following.error_code, following.base_offset) == (0, 3)
        assert await read_all(peer, "t") == [(number, b"%d" % number) for number in range(4)]
        assert (await list_offset(peer, "t", -1)).offset == 4
        assert (await list_offset(peer, "t", -2)).offset == 0
        assert (await list_offset(peer, "t", -1, index=1)).offset == 0
    assert not list((tmp_path / "data").glob("t-*"))


@looped
async def test_a_sealed_partition_is_read_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30, D32: while the control plane cannot be reached; the operator is told why, can call it
    off, and a producer can go on (broker.diskless.M2).
    """
    async def unavailable(self: object, adopted: AdoptedLog, now_ms: int) -> bool:
        raise ControlPlaneUnavailable("the database is down")

    async with node_here(tmp_path) as node, node.connect() as peer:
        topic_id = await node.create("t", remote_storage_enable="true")
        await put(peer, "t", b"0", base_sequence=0, **PRODUCER)
        assert isinstance(node.node.diskless, Diskless)
        with monkeypatch.context() as patch:
            patch.setattr(type(node.node.diskless.plane), "adopt_log", unavailable)
            await migrate(peer, BEGIN)

            async def is_told() -> bool:
                (state,) = (await migrate(peer, DESCRIBE)).partitions
                return state.step == COPYING and state.trouble == "the database is down"

            await until_true(is_told)
            refused = await put(peer, "t", b"1", base_sequence=1, **PRODUCER)
            assert refused.error_code == Code.NOT_LEADER_OR_FOLLOWER
            assert await read_all(peer, "t") == [(0, b"0")]
            deleted = await peer.ask(DeleteRecordsRequest(timeout=1000, topics=[
                DeleteRecordsTopic(name="t", partitions=[
                    DeleteRecordsPartition(partition_index=0, offset=1)])]), 2)
            assert deleted.topics[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
            assert (await migrate(peer, BEGIN)).error_code == 0  # it is under way
            cancelled = await migrate(peer, CANCEL)
            assert (cancelled.error_code, await steps(peer)) == (0, {NOT_BEGUN})
        part = await put(peer, "t", b"1", base_sequence=1, **PRODUCER)
        assert (part.error_code, part.base_offset) == (0, 1)
        await migrated(peer)
        (bounds,) = await node.node.diskless.plane.bounds([LogKey(topic_uuid(topic_id), 0)])
        assert bounds is not None
        assert bounds[:3] == (0, 2, 2)
        assert (await migrate(peer, CANCEL)).error_code == Code.INVALID_REQUEST


@looped
async def test_a_batch_that_was_refused_comes_before_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: a producer whose first batch came while the topic was sealed, and whose second came
    after the switch, on the same connection (broker.partitions.S1).
    """
    async def nothing(self: Migrations) -> None:
        return

    async with node_here(tmp_path) as node, node.connect() as peer:
        await node.create("t", remote_storage_enable="true")
        with monkeypatch.context() as patch:
            patch.setattr(migration_module.Migrations, "make_pass", nothing)
            await migrate(peer, BEGIN)
            refused = await put(peer, "t", b"0", base_sequence=0, **PRODUCER)
            assert refused.error_code == Code.NOT_LEADER_OR_FOLLOWER
        await migrated(peer)

        early = await put(peer, "t", b"1", base_sequence=1, **PRODUCER)
        assert early.error_code not in (0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        for number in range(2):
            part = await put(peer, "t", b"%d" % number, base_sequence=number, **PRODUCER)
            assert (part.error_code, part.base_offset) == (0, number)


@looped
async def test_it_resumes_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D32: the metadata says that the topic is sealed, and nothing else is remembered; a node that
    was down at the switch removes what it has on its disk.
    """
    async def nothing(self: Migrations) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr(migration_module.Migrations, "make_pass", nothing)
        async with node_here(tmp_path) as node, node.connect() as peer:
            await node.create("t", remote_storage_enable="true")
            await put(peer, "t", b"0")
            await migrate(peer, BEGIN)
            assert await steps(peer) == {SEALING}
    (log,) = (tmp_path / "data").glob("t-*")
    kept = {path.name: path.read_bytes() for path in log.iterdir()}
    async with node_here(tmp_path) as node, node.connect() as peer:
        await migrated(peer)
        assert await read_all(peer, "t") == [(0, b"0")]
    log.mkdir(exist_ok=True)
    for name, data in kept.items():
        (log / name).write_bytes(data)
    async with node_here(tmp_path) as node, node.connect() as peer:
        await put(peer, "t", b"1")
        assert await read_all(peer, "t") == [(0, b"0"), (1, b"1")]
    assert not list((tmp_path / "data").glob("t-*"))


@looped
async def test_a_migrated_topic_is_deleted_with_its_tier(tmp_path: Path) -> None:
    """D30: whoever led its segments before, nothing of it is left."""
    async with node_here(tmp_path, remote_log_orphan_grace_ms="2000") as node, \
            node.connect() as peer:
        await node.create("t", remote_storage_enable="true")
        await put(peer, "t", b"0")
        await migrated(peer)
        await put(peer, "t", b"1")
        assert isinstance(node.node.diskless, Diskless)
        plane, remote = node.node.diskless.plane, tmp_path / "data" / "remote"
        assert list(remote.rglob("*.log"))

        await node.node.broker.cluster.controller.delete_topics([("t", ZERO_UUID)])

        await until(lambda: not list(remote.rglob("*.log")))

        async def is_forgotten() -> bool:
            return await plane.topics() == {}

        await until_true(is_forgotten)


@looped
async def test_hostile_requests(tmp_path: Path) -> None:
    """K8: impossible actions, and topics that do not exist, are errors of the request alone."""
    async with node_here(tmp_path) as node, node.connect() as peer:
        await node.create("t", remote_storage_enable="true")
        for action in (-128, -1, 3, 127):
            assert (await migrate(peer, action)).error_code == Code.INVALID_REQUEST
        for name in ("", "x" * 30_000, "no such", "__consumer_offsets"):
            for action in (BEGIN, CANCEL, DESCRIBE):
                response = await migrate(peer, action, name)
                assert response.error_code in (
                    Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_REQUEST), (name, action)
                assert len(response.error_message) < 500
        assert await steps(peer) == {NOT_BEGUN}
