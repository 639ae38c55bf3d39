"""Metadata in the cluster's own topic: on one node, and on chains whose leaders come and go."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from quipu.broker.coordinators.command_log import PartitionCommandLog
from quipu.broker.metadata_topic.topic_backend import TopicBackend, scope_of
from quipu.model.batch_types import REMOTE_METADATA
from quipu.model.errors import Code, RequestError
from quipu.model.partition_log import PartitionLog
from quipu.model.topics import REMOTE_LOG_METADATA
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    ExpectationFailed,
    InvalidStorageRequest,
    KeyExists,
    KeyNotFound,
    OutcomeUnknown,
)
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.states import PARTITION_FINISHED, PARTITION_MARKED, PARTITION_STARTED
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    ExpectValue,
    KeyValue,
    RemoveKey,
    UpdateKey,
)
from quipu.runtime.clock import Clock
from tests.harness.here import NodeHere
from tests.looped import looped
from tests.remote.metadata.segments import deletion
from tests.remote.metadata.world import manager_of


class DoubtfulLog(PartitionCommandLog):
    """A command log that fails after it has written, or before."""

    def __init__(self, partition: PartitionLog, clock: Clock) -> None:
        super().__init__(partition, REMOTE_METADATA, clock)
        self.fails = ""

    async def append(self, commands: Sequence[bytes]) -> None:
        fails, self.fails = self.fails, ""
        if fails != "before":
            await super().append(commands)
        if fails:
            raise RequestError("no response", code=Code.REQUEST_TIMED_OUT)


class Opened:
    """A backend on a node, and the logs that it has opened."""

    def __init__(self, node: NodeHere) -> None:
        self.logs: list[DoubtfulLog] = []
        broker = node.node.broker
        self.backend = TopicBackend(
            broker, None, partition_count=3, timeout_seconds=10.0, is_registered=lambda _: True,
            open_log=self._open)
        self._clock = broker.clock
        replication = node.node._replication
        assert replication is not None
        replication.watch(self.backend)

    def _open(self, partition: PartitionLog) -> DoubtfulLog:
        self.logs.append(DoubtfulLog(partition, self._clock))
        return self.logs[-1]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Opened]:
    async with NodeHere(path) as node:
        made = Opened(node)
        try:
            yield made
        finally:
            await made.backend.close()


@looped
async def test_entries_survive_a_restart(tmp_path: Path) -> None:
    """R7, R12: create, update, remove, and all of a partition at once."""
    async with opened(tmp_path) as first:
        backend = first.backend
        await backend.create("t/1/a", b"1")
        await backend.create("t/1/a", b"1")  # a retry
        with pytest.raises(KeyExists):
            await backend.create("t/1/a", b"2")
        with pytest.raises(KeyNotFound):
            await backend.update("t/1/b", b"2")
        await backend.execute([
            CreateKey("t/1/b/1", b"x"), CreateKey("t/1/b/2", b"y"), UpdateKey("t/1/a", b"3"),
            CreateKey("t/1/gone", b"z"), RemoveKey("t/1/gone")])
        await backend.create("t/2/a", b"other")
    async with opened(tmp_path) as second:
        backend = second.backend
        assert await backend.get("t/1/a") == b"3"
        assert await backend.get("t/1/gone") is None
        assert await backend.get_like("t/1/b") == [KeyValue("t/1/b/1", b"x"),
                                                   KeyValue("t/1/b/2", b"y")]
        assert await backend.floor("t/1/b", "t/1/b/15") == KeyValue("t/1/b/1", b"x")
        await backend.remove_like("t/1")
        assert await backend.get_like("t/1") == []
        assert await backend.get("t/2/a") == b"other"


@looped
async def test_a_write_that_expects_what_is_gone_changes_nothing(tmp_path: Path) -> None:
    """R11: of two writers that race, one succeeds; the other one's step leaves no trace.

    Shows broker.metadata_topic.S1 and broker.metadata_topic.B1.
    """
    async with opened(tmp_path) as there:
        backend = there.backend
        await backend.create("t/1/fence", b"0")
        results = await asyncio.gather(*(backend.execute([
            ExpectValue("t/1/fence", b"0"), UpdateKey("t/1/fence", b"%d" % number),
            CreateKey(f"t/1/by-{number}", b"")]) for number in range(1, 9)),
            return_exceptions=True)
        assert [type(each) for each in results].count(ExpectationFailed) == 7
        winner = int(await backend.get("t/1/fence") or b"")
        assert [key for key, _ in await backend.get_like("t/1")] == [
            f"t/1/by-{winner}", "t/1/fence"]


@pytest.mark.parametrize("fails", ["before", "after"])
@looped
async def test_an_unknown_outcome_is_found_in_the_log(tmp_path: Path, fails: str) -> None:
    """R2: broker.metadata_topic.S3: the shard reads its log again before it serves."""
    async with opened(tmp_path) as there:
        backend = there.backend
        await backend.create("t/1/a", b"1")
        log = next(log for log in there.logs if log.commands_size)
        log.fails = fails
        with pytest.raises(OutcomeUnknown):
            await backend.update("t/1/a", b"2")
        found = await backend.get("t/1/a")
        assert found == (b"2" if fails == "after" else b"1")
        await backend.execute([ExpectValue("t/1/a", found or b""), UpdateKey("t/1/a", b"3")])
        assert await backend.get("t/1/a") == b"3"
    async with opened(tmp_path) as again:
        assert await again.backend.get("t/1/a") == b"3"


@looped
async def test_one_step_is_about_one_partition(tmp_path: Path) -> None:
    """R6: what is in several partitions of the topic cannot change at once."""
    async with opened(tmp_path) as there:
        with pytest.raises(InvalidStorageRequest, match="can only change one"):
            await there.backend.execute([CreateKey("t/1/a", b""), CreateKey("t/2/a", b"")])
        with pytest.raises(InvalidStorageRequest, match="begins with a topic id"):
            await there.backend.get("alone")
    assert scope_of("t/1/a/b") == scope_of("t/1/c") == "t/1"


@looped
async def test_after_its_end_nothing_is_served(tmp_path: Path) -> None:
    """R12: a node that stops refuses at once; the next leader goes on."""
    async with NodeHere(tmp_path) as node:
        there = Opened(node)
        await there.backend.create("t/1/a", b"1")
        assert REMOTE_LOG_METADATA in node.node.broker.cluster.state.topics
        await there.backend.close()
        backend = TopicBackend.__new__(TopicBackend)
        backend.__dict__.update(there.backend.__dict__, _timeout_seconds=0.1)
        with pytest.raises(BackendUnavailable, match="COORDINATOR_NOT_AVAILABLE"):
            await backend.get("t/1/a")


@looped
async def test_partitions_of_a_cluster_are_listed_across_the_topic(tmp_path: Path) -> None:
    """R12: remote.W5: headers are in any partition of the topic, the list of them is in one."""
    async with opened(tmp_path) as first:
        manager = await manager_of(first.backend, cluster_id="ours")
        partitions = [TopicIdPartition(UUID(int=number), number, "t") for number in range(9)]
        await manager.on_partition_leadership_changes(dict.fromkeys(partitions, 1), ())
        assert await manager.list_partitions() == partitions
        for state in (PARTITION_MARKED, PARTITION_STARTED, PARTITION_FINISHED):
            await manager.put_remote_partition_delete_metadata(deletion(partitions[3], state))
        assert await manager.list_partitions() == partitions[:3] + partitions[4:]
