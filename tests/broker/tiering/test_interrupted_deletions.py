"""Topics whose last leader ends in the middle of deleting them: nothing is left of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.client.admin.topics import create_topic, delete_topic
from quipu.client.cluster import Cluster
from quipu.client.settings import client_settings
from quipu.model.ids import ZERO_UUID
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.states import (
    PARTITION_FINISHED,
    PARTITION_MARKED,
    PARTITION_STARTED,
)
from quipu.remote.metadata.storage.memory import MemoryBackend
from tests.broker.tiering.test_orphans import metadata_keys
from tests.broker.tiering.test_tiering import filled, log_of, tiered_node, until
from tests.harness.node import RunningNode
from tests.harness.page_module import page_code
from tests.harness.progress import wait_for
from tests.looped import looped
from tests.pipeline.spark.broker import Broker
from tests.remote.metadata.segments import deletion, fresh_partition
from tests.remote.metadata.world import FailingBackend, failing, manager_of

DYING = '''

import signal

class DyingBackend(JournalBackend):
    """Ends its process when the last object is gone, and before the keys are."""

    async def remove_like(self, key, *, expected=()) -> None:
        if self._path.with_name("die").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        await super().remove_like(key, expected=expected)


class DyingConnector(JournalConnector):
    async def open_backend(self):
        return DyingBackend(self._path)
'''
TIERED = {"remote.storage.enable": "true", "segment.bytes": "16384",
          "local.retention.bytes": "16384"}


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[RunningNode]:
    """A node whose metadata is in a file, and which is killed while there is a file `die`."""
    code = page_code("operating/remote-metadata.md")
    (tmp_path / "dying_backend.py").write_text(code + DYING)
    node = RunningNode(tmp_path / "data", settings={
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.class.path": str(tmp_path),
        "rlmm.config.metadata.storage.connector.class": "dying_backend.DyingConnector",
        "rlmm.config.metadata.storage.url": f"journal:{tmp_path / 'metadata.jsonl'}",
        "remote.log.manager.task.interval.ms": "50", "log.retention.check.interval.ms": "100",
        "remote.log.orphan.grace.ms": "1000"})
    with node:
        yield node


def keys_of(journal: Path) -> set[str]:
    """The keys that a journal has in the end."""
    found: set[str] = set()
    for line in journal.read_text().splitlines():
        change = json.loads(line)
        found = (found | change["put"].keys()) - set(change["remove"])
    return found


def test_killed_between_the_last_object_and_the_last_key(
    tmp_path: Path, dying: RunningNode
) -> None:
    """R12, R15: remote.W5, broker.tiering.O5: SIGKILL; the node that comes back goes on."""
    journal, objects = tmp_path / "metadata.jsonl", tmp_path / "data" / "remote"
    settings = client_settings({"bootstrap.servers": dying.bootstrap})
    with Cluster(settings) as cluster:
        create_topic(cluster, "t", settings=TIERED)
        sender = Broker(dying.bootstrap)
        for number in range(10):
            sender.send("t", *(f"k:{each:01000d}" for each in range(10 * number, 10 * number + 10)))
        wait_for(lambda: len(list(objects.rglob("*.log"))) > 3)
        (tmp_path / "die").touch()
        delete_topic(cluster, "t")
    wait_for(lambda: not dying.runs)
    dying.kill()  # closes what it was watched by
    left = keys_of(journal)
    assert any(key.endswith("/header") for key in left)
    assert any(key.startswith("clusters/") for key in left)
    assert not list(objects.rglob("*.log"))
    (tmp_path / "die").unlink()
    dying.start()
    wait_for(lambda: not keys_of(journal))


@looped
async def test_killed_before_anything_was_deleted(tmp_path: Path) -> None:
    """R12, R15: the leader never began; a topic of which nothing was copied has a header, too."""
    grace = {"remote_log_orphan_grace_ms": "1000"}
    async with tiered_node(tmp_path, **grace) as node:
        await node.create("idle", remote_storage_enable="true")
        await filled(node)
        dead = [str(log_of(node, name).topic_id) for name in ("t", "idle")]
        await until(lambda: all(any(f"{each}/0000000000/header" in key
                                    for key in metadata_keys(tmp_path)) for each in dead))
        tiering = node.node._tiering
        assert tiering is not None
        tiering.log._deleted.interval_seconds = 3600.0

        def nothing(topic: object) -> Iterator[None]:
            del topic
            tiering.log._tasks.clear()
            yield

        tiering.log.on_topic_deleted = nothing  # type: ignore[method-assign]
        for name in ("t", "idle"):
            await node.node.broker.cluster.controller.delete_topics([(name, ZERO_UUID)])
        assert any(dead[1] in key for key in metadata_keys(tmp_path))
    async with tiered_node(tmp_path, **grace) as node:
        await node.create("alive", remote_storage_enable="true")
        await until(lambda: not any(
            each in key for key in metadata_keys(tmp_path) for each in dead))
        alive = str(log_of(node, "alive").topic_id)
        await until(lambda: any(alive in key for key in metadata_keys(tmp_path)))
        assert not list((tmp_path / "data" / "remote").rglob("*.log"))


async def listed(store: FailingBackend, cluster_id: str) -> list[TopicIdPartition]:
    return await (await manager_of(store, cluster_id=cluster_id)).list_partitions()


@looped
async def test_each_cluster_lists_its_own_partitions() -> None:
    """R15: remote.W5: from before the header is there until after it is gone, whatever fails."""
    store, partition, other = failing(MemoryBackend()), fresh_partition(), fresh_partition()
    ours = await manager_of(store, cluster_id="ours")
    theirs = await manager_of(store, cluster_id="theirs")
    await theirs.on_partition_leadership_changes({other: 1}, ())
    store.faults = ["refuse"]
    await ours.on_partition_leadership_changes({partition: 1}, ())
    assert await listed(store, "ours") == [partition]
    for state in (PARTITION_MARKED, PARTITION_STARTED, PARTITION_FINISHED):
        await ours.put_remote_partition_delete_metadata(deletion(partition, state))
    assert await listed(store, "ours") == []
    assert await listed(store, "theirs") == [other]
    assert await listed(store, "") == []
