"""A control plane belongs to one cluster: another one leaves it as it is."""

import asyncio
from pathlib import Path

from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.model.errors import Code
from tests.broker.diskless.parts import create, diskless_node, put, until
from tests.harness.here import batch_of, produce
from tests.looped import looped


@looped
async def test_a_new_cluster_leaves_the_database_of_an_old_one_alone(tmp_path: Path) -> None:
    """broker.diskless.C1: it says whose it is, serves no diskless topic, and deletes nothing."""
    url = f"sqlite://{tmp_path / 'shared.sqlite'}"
    async with diskless_node(tmp_path / "old", diskless_control_plane_url=url) as node, \
            node.connect() as peer:
        await create(node)
        assert (await put(peer, "t", b"a")).error_code == 0
        old = node.node.broker.cluster_id
    # A controller looks for logs of no topic every quarter of the grace period.
    async with diskless_node(
            tmp_path / "new", diskless_control_plane_url=url, diskless_object_grace_ms="1000",
            diskless_cleaner_interval_ms="1000") as node, node.connect() as peer:
        new, diskless = node.node.broker.cluster_id, node.node.diskless
        assert diskless is not None
        await until(diskless.warnings)
        text = diskless.warnings()["diskless"]
        assert old in text
        assert new in text
        await node.create("u", 1, diskless_enable="true")
        response = await peer.ask(produce("u", batch_of(b"x"), acks=-1), 9)
        assert response.responses[0].partition_responses[0].error_code == Code.KAFKA_STORAGE_ERROR
        await asyncio.sleep(1)
        assert not diskless.is_reachable
        await node.create("classic", 1)
        assert (await put(peer, "classic", b"x")).error_code == 0
    plane = SqliteControlPlane(str(tmp_path / "shared.sqlite"))
    await plane.open()
    assert [name for name, _ in (await plane.topics()).values()] == ["t"]
    assert len(await plane.objects()) == 1
    await plane.close()
    async with diskless_node(tmp_path / "old", diskless_control_plane_url=url) as node, \
            node.connect() as peer:
        await until(lambda: node.node.diskless is not None and node.node.diskless.is_reachable)
        assert (await put(peer, "t", b"b")).base_offset == 1
