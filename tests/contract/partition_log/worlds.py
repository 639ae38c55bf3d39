"""Partition logs to hold to the contract: one node's, a chain's, one whose answers come late, such
whose old records are in a tier, and diskless ones.

A world has the log that appends go to and the one that reads are made at, which in a chain are
those of the head and of the tail.  To add an implementation, add a world to `WORLDS`.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import ACKS_ALL, AppendResult, PartitionLog, ReadResult
from quipu.runtime.spawn import spawn
from quipu.storage.config import LogConfig
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header
from tests.broker.replication.rig import ANode, Rig
from tests.contract.partition_log.diskless_worlds import DisklessWorld, FarReaderWorld
from tests.contract.partition_log.late import LateLog
from tests.harness.memory_tier import MemoryTier

TIMEOUT_MS = 120_000
ROUNDS_MAX = 5_000
Outcome = AppendResult | QuipuError


class World(Protocol):
    """Where the contract's tests take place."""

    rig: Rig
    lacks: Mapping[str, str]  # what it has not by its nature, and why
    log: PartitionLog  # where appends go
    reader: PartitionLog  # where reads are made

    async def open(self) -> None:
        """Make the log, and have it led."""
        ...

    async def lose_leadership(self) -> None:
        """Have another node lead from now on, or none."""
        ...

    async def lose_replicas(self) -> None:
        """Have the leader go on without the other replicas of the partition."""
        ...

    async def move_to_tier(self) -> None:
        """Have all committed records in the remote tier only, if there is one."""
        ...


class SingleNode:
    """The log of one node without others."""

    node_count = 1
    lacks: Mapping[str, str] = {}

    def __init__(self, path: Path, *, min_insync: int = 1, **config: Any) -> None:
        self.rig = Rig(path, config=LogConfig(**config), min_insync=min_insync)
        self.nodes: list[ANode] = []
        self.log: PartitionLog
        self.reader: PartitionLog

    async def open(self) -> None:
        self.nodes = self.rig.nodes(self.node_count)
        self.rig.configure(serving=range(1, self.node_count + 1))
        await self.rig.leads(self.nodes[0])
        await self.rig.settled()
        self.log, self.reader = self.nodes[0].partition, self.nodes[-1].partition

    async def lose_leadership(self) -> None:
        self.nodes[0].replication.forget(self.nodes[0].partition)

    async def lose_replicas(self) -> None:
        self.rig.configure(serving=[1], offline=range(2, max(self.node_count, 2) + 1), to=[1])
        await self.rig.leads(self.nodes[0])

    async def move_to_tier(self) -> None:
        pass


class ChainOfThree(SingleNode):
    """The log of the head of a chain, read at its tail."""

    node_count = 3

    async def lose_leadership(self) -> None:
        self.rig.configure(serving=[2, 3, 1])
        await self.rig.until(lambda: not self.log.is_leader)


class LateSingleNode(SingleNode):
    """A single node's log whose offsets and bytes are known only some turns later."""

    async def open(self) -> None:
        await super().open()
        self.log = self.reader = LateLog(self.nodes[0].partition)


class TieredSingleNode(SingleNode):
    """A single node's log that keeps what is committed in a remote tier only."""

    def __init__(self, path: Path, *, min_insync: int = 1, **config: Any) -> None:
        super().__init__(path, min_insync=min_insync, is_tiered=True, local_retention_ms=0,
                         **config)
        self.tier = self.rig.remote_reads = MemoryTier()

    async def move_to_tier(self) -> None:
        log, now_ms = self.nodes[0].partition, self.rig.clock.now_ms()
        log.internal.roll(now_ms)
        await until(self, lambda: log.committed_end == log.log_end)
        await log.flush()
        last = self.tier.copy(log.tier)
        if last is None:
            return
        noted = spawn(log.tier.note_tiered(last, now_ms), "note what is tiered")
        await until(self, noted.done)
        for node in self.nodes:
            partition = node.partition
            await until(self, lambda log=partition: log.highest_tiered_offset == last)
            await until(self, lambda log=partition: log.committed_end == log.log_end)
            await partition.flush()
            partition.apply_retention(now_ms)
            assert partition.local_start_offset == last + 1


class TieredChain(TieredSingleNode, ChainOfThree):
    """The log of a chain whose nodes keep what is committed in a remote tier only."""


WORLDS: dict[str, Callable[..., World]] = {
    "single": SingleNode, "chain": ChainOfThree, "late": LateSingleNode,
    "tiered": TieredSingleNode, "tiered chain": TieredChain,
    "diskless": DisklessWorld, "diskless far reader": FarReaderWorld,
}


async def until(world: World, condition: Callable[[], object]) -> None:
    """Let turns, and a little time, pass until `condition` holds: disks and threads are real."""
    for number in range(ROUNDS_MAX):
        await world.rig.turns(30)
        if condition():
            return
        await asyncio.sleep(0.001)
        if number % 10 == 9:
            await world.rig.pass_time()
    raise AssertionError("it did not come to be")


def batch_of(*values: bytes, timestamp: int = 1, **header: int) -> bytearray:
    """A batch with one record for each value."""
    return encode_batch([Record(None, value, (), timestamp) for value in values], **header)


def begin_append(
    world: World, batch: bytes | bytearray, *, acks: int = ACKS_ALL, timeout_ms: int = TIMEOUT_MS
) -> list[Outcome]:
    """Append; the list has the outcome as soon as it is known, be it raised or given later."""
    outcomes: list[Outcome] = []
    try:
        appending = world.log.append(
            memoryview(bytearray(batch)), world.rig.clock.now_ms(), acks, timeout_ms)
    except QuipuError as error:
        return [error]
    if isinstance(appending, AppendResult):
        outcomes.append(appending)
    else:
        appending.when_done(outcomes.append)
    return outcomes


async def append(
    world: World, *values: bytes, acks: int = ACKS_ALL, timestamp: int = 1, **header: int
) -> AppendResult:
    """Append one batch, and give its result."""
    outcomes = begin_append(world, batch_of(*values, timestamp=timestamp, **header), acks=acks)
    await until(world, lambda: outcomes)
    (outcome,) = outcomes
    if isinstance(outcome, QuipuError):
        raise outcome
    return outcome


async def refusal(world: World, batch: bytes | bytearray) -> QuipuError:
    """Append a batch that must not be taken, and give why."""
    outcomes = begin_append(world, batch)
    await until(world, lambda: outcomes)
    (outcome,) = outcomes
    assert isinstance(outcome, QuipuError), outcome
    return outcome


async def read(
    world: World, offset: int, max_bytes: int = 1 << 20, *, min_one: bool = True,
    dirty: bool = False,
) -> ReadResult:
    """Read, and read again when bytes that are on their way have arrived."""
    result = world.reader.read(Offset(offset), max_bytes, min_one=min_one, dirty=dirty)
    if isinstance(result, ReadResult):
        return result
    arrived: list[bool] = []
    result.when_arrived(lambda: arrived.append(True))
    await until(world, lambda: arrived)
    again = world.reader.read(Offset(offset), max_bytes, min_one=min_one, dirty=dirty)
    assert isinstance(again, ReadResult), "bytes that have arrived are not on their way (model.P5)"
    result.cancel()
    await world.rig.turns(10)
    assert arrived == [True]
    return again


def values_of(result: ReadResult) -> list[tuple[int, bytes | None]]:
    """The offsets and values of all records that a read gave."""
    found: list[tuple[int, bytes | None]] = []
    assert result.size == sum(map(len, result.buffers))
    for buffer in result.buffers:
        data = memoryview(buffer)
        while data:
            header = parse_header(data)
            found += [
                (header.base_offset + delta, record.value) for delta, record in enumerate(
                    decode_records(data[: header.size], size_max=1 << 24))]
            data = data[header.size :]
    return found


async def committed(world: World) -> None:
    """Return once everything appended is committed, and known to be where reads are made.

    If there is a remote tier, it is only there then.
    """
    end = world.log.log_end_offset
    await until(
        world, lambda: world.log.high_watermark == end == world.reader.high_watermark)
    await world.move_to_tier()


class Waiter:
    """A fetch that waits, and what it is notified of."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def advanced(self, size: int) -> None:
        self.sizes.append(size)

    def finish(self) -> None:
        raise AssertionError("nobody ends this wait")


async def run_here(work: Callable[[], Any], /) -> Any:
    """Work that takes long, done at once."""
    await asyncio.sleep(0)
    return work()


def break_log(world: World) -> CorruptLog:
    """Have the storage under the log fail."""
    error = CorruptLog("broken for a test")
    for node in world.rig.members.values():
        node.partition.log.fail(error)
    return error
