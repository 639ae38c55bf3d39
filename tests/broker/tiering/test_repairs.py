"""A disk changes what the tier has, too: the node gets it back from there."""

from pathlib import Path

import pytest

from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication import batch_repairs
from quipu.model.errors import Code
from tests.broker.tiering.test_tiering import (
    COUNT,
    TIERED,
    fetched,
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


async def copied(node: NodeHere) -> ReplicatedPartition:
    """A topic whose segments are in the tier, and on the disk as well."""
    await node.create("t", **{**TIERED, "local_retention_bytes": "-1", "retention_bytes": "-1"})
    await write(node, values(range(COUNT)))
    log = log_of(node)
    assert isinstance(log, ReplicatedPartition)
    await until(lambda: log.highest_tiered_offset > COUNT // 2)
    assert log.local_start_offset == 0
    return log


def damage(partition: ReplicatedPartition, number: int) -> bytes:
    """Change a byte in the middle of a complete segment; gives the file as it was."""
    segment = partition.log.segments[number]
    path = Path(partition.log.directory.path) / Path(segment.path).name
    intact = path.read_bytes()
    middle = len(intact) // 2
    segment.release()  # a map in memory has the bytes as they were
    path.write_bytes(intact[:middle] + bytes([intact[middle] ^ 1]) + intact[middle + 1:])
    return intact


async def codes(node: NodeHere, partition: ReplicatedPartition) -> set[int]:
    """What reads of each record of the damaged segment get."""
    segment = partition.log.segments[2]
    return {(await fetched(node, offset))[0]
            for offset in range(segment.base_offset, segment.end_offset)}


@looped
async def test_one_node_repairs_its_log_from_the_tier(tmp_path: Path) -> None:
    """T12, R13: broker.replication.E5: the same bytes again, though no other replica has them."""
    async with tiered_node(tmp_path) as node:
        partition = await copied(node)
        intact = damage(partition, 2)
        found = await codes(node, partition)
        assert found <= {Code.NONE, Code.KAFKA_STORAGE_ERROR}  # which clients retry
        stats = node.node.stats
        await until(lambda: stats.repaired_batches > 0 and not stats.damaged_now)
        repaired = partition.log.segments[2]
        assert (Path(partition.log.directory.path) / Path(repaired.path).name
                ).read_bytes() == intact
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
        assert not repaired.damage


@looped
async def test_what_both_have_lost_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T12, R15: an object that is damaged or gone repairs nothing; an intact one does later."""
    monkeypatch.setattr(batch_repairs, "PAUSE_SECONDS_MAX", 0.1)
    async with tiered_node(tmp_path) as node:
        partition = await copied(node)
        kept = {path: path.read_bytes() for path in objects(tmp_path)}
        for path, data in kept.items():
            path.write_bytes(bytes(len(data)))
        damage(partition, 2)
        while Code.CORRUPT_MESSAGE not in await codes(node, partition):
            pass
        assert node.node.stats.damaged_now == 1
        for path, data in kept.items():
            path.write_bytes(data)
        await until(lambda: node.node.stats.repaired_batches > 0)
        assert await read_all(node, 0, COUNT) == values(range(COUNT))
