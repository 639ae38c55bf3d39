"""Any state machine can be kept in an internal topic: here, counters by name."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from quipu.broker.coordinators.command_log import PartitionCommandLog
from quipu.broker.coordinators.command_writer import CommandLog
from quipu.broker.coordinators.shard import CoordinatorShard
from quipu.broker.coordinators.shards import CoordinatorShards, CoordinatorTopic
from quipu.broker.serving.context import Broker
from quipu.model.batch_types import GROUP
from quipu.model.errors import Code, RequestError
from quipu.model.ids import TopicPartition
from quipu.model.partition_log import PartitionLog
from quipu.model.topics import TRANSACTION_STATE
from quipu.runtime.clock import ManualClock
from tests.broker.clusters import a_cluster
from tests.broker.groups.brokers import SETTINGS, GroupMemoryLog, LateLog, settle
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped

TOPIC = TRANSACTION_STATE  # nothing else uses it yet
PARTITION = TopicPartition(TOPIC, 0)


class Counters:
    """The state machine: a command is a name and the value that it has from now on."""

    def __init__(self, name: str, log: CommandLog[bytes]) -> None:
        self.core = CoordinatorShard(name, log, self)
        self.values: dict[str, int] = {}
        self.life: list[str] = []

    def apply(self, command: bytes) -> None:
        name, value = command.decode().split("=")
        self.values[name] = int(value)

    def snapshot(self) -> Iterator[bytes]:
        return (f"{name}={value}".encode() for name, value in self.values.items())

    async def prepare(self) -> None:
        assert self.core.unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS
        self.life.append("prepared")

    async def begin(self) -> None:
        assert self.core.unavailable is Code.NONE
        self.life.append("begun")

    def end(self, code: Code) -> None:
        self.core.end(code)

    def close(self) -> None:
        self.end(Code.NOT_COORDINATOR)
        self.core.close()

    async def add(self, name: str) -> Code:
        value = self.values.get(name, 0) + 1
        return await self.core.keep([f"{name}={value}".encode()],
                                    lambda: self.values.update({name: value}))


async def counters(
    node: ANode | None = None, log: CommandLog[bytes] | None = None
) -> CoordinatorShards[Counters]:
    """The coordinator of one node; its log is the node's partition, or one in memory."""
    cluster = await a_cluster(SETTINGS)
    await cluster.ensure_internal_topic(TOPIC, 1)
    broker = SimpleNamespace(
        cluster=cluster, node_id=cluster.node_id, settings=cluster.settings,
        clock=ManualClock() if node is None else node.rig.clock,
        partitions=SimpleNamespace(find=lambda *_: None if node is None else node.partition))
    shards = CoordinatorShards(
        cast("Broker", broker), CoordinatorTopic(TOPIC, 1, GROUP), Counters,
        None if log is None else lambda _: log)
    if node is not None:
        node.partition.topic_partition = PARTITION
        node.replication.watch(shards)
    return shards


def led(*, has_lease: bool = True) -> PartitionLog:
    return cast("PartitionLog", SimpleNamespace(topic_partition=PARTITION, has_lease=has_lease))


def served(shards: CoordinatorShards[Counters]) -> Counters:
    shard, code = shards.shard_of("any")
    assert code is Code.NONE
    assert shard is not None
    return shard


async def begin(
    log: CommandLog[bytes], partition: PartitionLog | None = None
) -> CoordinatorShards[Counters]:
    shards = await counters(log=log)
    shards.leading_began(partition or led())
    await shards.loaded()
    await settle()
    return shards


@looped
async def test_what_was_kept_is_there_for_the_next_leader(tmp_path: Path) -> None:
    """V16: on a real chain of three: broker.coordinators.L1, broker.coordinators.H2."""
    rig = Rig(tmp_path)
    nodes = rig.nodes(3)
    coordinators = [await counters(node) for node in nodes]
    rig.configure(serving=[1, 2, 3])
    await rig.until(lambda: coordinators[0].shard_of("a")[1] is Code.NONE)
    adding = asyncio.ensure_future(served(coordinators[0]).add("a"))
    await rig.until(adding.done)
    assert adding.result() is Code.NONE
    assert coordinators[1].shard_of("a") == (None, Code.NOT_COORDINATOR)
    nodes[0].crash()
    rig.configure(serving=[2, 3], offline=[1])
    await rig.until(lambda: coordinators[1].shard_of("a")[1] is Code.NONE)

    assert served(coordinators[1]).values == {"a": 1}
    assert served(coordinators[1]).life == ["prepared", "begun"]


@looped
async def test_a_follower_drops_what_a_snapshot_replaced(tmp_path: Path) -> None:
    """T7: broker.coordinators.L3; the leader has dropped it already."""
    rig = Rig(tmp_path)
    a, b, _ = rig.nodes(3)
    coordinators = [await counters(node) for node in (a, b)]
    rig.configure(serving=[1, 2, 3])
    await rig.until(lambda: coordinators[0].shard_of("a")[1] is Code.NONE)
    shard = served(coordinators[0])
    shard.core._writer._snapshot_size = 2_000
    for _ in range(20):
        adding = asyncio.ensure_future(shard.add("a"))
        await rig.until(adding.done)
    await shard.core.drained()
    sizes = [len(node.partition.log.segments) for node in (a, b)]
    assert sizes[0] == 1 < sizes[1]
    await rig.until(lambda: b.partition.commit_waiters.committed_log == a.partition.log.log_end)

    await coordinators[1].trim()

    assert len(b.partition.log.segments) == 1


@looped
async def test_a_repeated_command_and_a_snapshot_give_the_same_state() -> None:
    """T7: replay of a snapshot and of what follows it is the state that was."""
    log = GroupMemoryLog()
    shard = served(await begin(log))
    for _ in range(3):
        assert await shard.add("a") is Code.NONE
    await log.snapshot(shard.snapshot())
    assert await shard.add("b") is Code.NONE
    log.commands.append(log.commands[-1])

    assert served(await begin(log)).values == {"a": 3, "b": 1}


@looped
async def test_nobody_is_served_before_all_is_read() -> None:
    """K3: broker.coordinators.S1."""
    log = LateLog()
    log.commands = [b"a=7"]
    shards = await counters(log=log)
    shards.leading_began(led())
    await settle()
    assert shards.shard_of("a") == (None, Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert shards.unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert list(shards) == []
    waiting = asyncio.ensure_future(shards.shard_loaded("a"))
    await settle()
    assert not waiting.done()

    log.gate.set()

    shard, code = await waiting
    assert (code, shard is not None and shard.values) == (Code.NONE, {"a": 7})


@looped
async def test_a_shard_that_has_ended_stays_so() -> None:
    """V15: broker.coordinators.S3, broker.coordinators.H1; the next leadership reads again."""
    log = GroupMemoryLog()
    shards = await begin(log)
    shard = served(shards)
    assert await shard.add("a") is Code.NONE
    shards.leading_ended(led())
    assert shards.shard_of("a") == (None, Code.NOT_COORDINATOR)
    assert shard.core.unavailable is Code.NOT_COORDINATOR
    log.before_append = None  # it can be written to again, by another shard
    shards.leading_began(led())
    await shards.loaded()
    await settle()

    assert served(shards) is not shard
    assert served(shards).values == {"a": 1}


@looped
async def test_nothing_is_given_out_without_a_lease() -> None:
    """V15: broker.coordinators.L2: another node may lead the partition by now."""
    shards = await begin(GroupMemoryLog(), led(has_lease=False))

    assert shards.shard_of("a") == (None, Code.NOT_COORDINATOR)
    assert list(shards) == []
    assert await shards.find_coordinator("a", "PLAINTEXT") is None


@looped
async def test_a_command_is_applied_before_the_next_snapshot() -> None:
    """T7: broker.coordinators.S2: or a snapshot would lack what its commands said."""
    log = GroupMemoryLog()
    shard = served(await begin(log))
    shard.core._writer._snapshot_size = 1

    for _ in range(5):
        assert await shard.add("a") is Code.NONE

    await shard.core.drained()
    assert log.snapshots > 0
    assert served(await begin(log)).values == {"a": 5}


@looped
async def test_writes_that_fail_are_errors_of_those_who_asked() -> None:
    """K8: in order, each once: broker.coordinators.W1, broker.coordinators.W2; nothing applied."""
    log = GroupMemoryLog()
    shard = served(await begin(log))

    async def full() -> None:
        raise RequestError("the disk is full", code=Code.KAFKA_STORAGE_ERROR)

    log.before_append = full
    assert await asyncio.gather(shard.add("a"), shard.add("b")) == [
        Code.COORDINATOR_NOT_AVAILABLE] * 2
    assert shard.values == {}
    log.before_append = None
    assert await shard.add("a") is Code.NONE
    assert shard.values == {"a": 1}


@looped
async def test_a_stopped_node_serves_nobody_and_finishes_writing() -> None:
    """K10: clients are sent to look for a coordinator."""
    log = GroupMemoryLog()
    shards = await begin(log)
    shard = served(shards)
    adding = asyncio.ensure_future(shard.add("a"))
    await asyncio.sleep(0)

    await shards.stop()

    assert adding.done() or await adding is Code.NONE
    assert log.commands == [b"a=1"]
    assert shards.shard_of("a") == (None, Code.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(AssertionError):
        shard.end(Code.NONE)


class Reluctant:
    """A partition that cannot take the first writes, as while its chain begins a new epoch."""

    def __init__(self, partition: object, refusals: int) -> None:
        self._partition = partition
        self.refusals = refusals

    def __getattr__(self, name: str) -> object:
        return getattr(self._partition, name)

    @property
    def internal(self) -> object:
        return ReluctantRecords(self._partition.internal, self)  # type: ignore[attr-defined]


class ReluctantRecords:
    """Its internal records."""

    def __init__(self, records: object, partition: Reluctant) -> None:
        self._records = records
        self._partition = partition

    def __getattr__(self, name: str) -> object:
        return getattr(self._records, name)

    def append(self, *args: object) -> None:
        if self._partition.refusals:
            self._partition.refusals -= 1
            raise RequestError("too few replicas", code=Code.NOT_ENOUGH_REPLICAS)
        self._records.append(*args)  # type: ignore[attr-defined]


@looped
async def test_a_write_waits_for_a_partition_that_cannot_take_it_yet(tmp_path: Path) -> None:
    """V21: broker.coordinators.H3: clients hear of it only if it lasts."""
    rig = Rig(tmp_path)
    node, = rig.nodes(1)
    rig.configure(serving=[1])
    await rig.settled()
    partition = Reluctant(node.partition, refusals=3)
    log = PartitionCommandLog(cast("PartitionLog", partition), GROUP, rig.clock)

    await log.append([b"a=1"])

    assert partition.refusals == 0
    found: list[bytes] = []
    await PartitionCommandLog(cast("PartitionLog", partition), GROUP, rig.clock).load(found.append)
    assert found == [b"a=1"]
