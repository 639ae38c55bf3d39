"""A world of real nodes with tiered storage: the topic's old segments are in an object store only.

All of `worlds/node.py`: the same clients, faults and checkers.  In addition the object store is
slow, refuses requests and loses responses, and links to it are cut; consumers begin late, so that
they read from the tier while all that happens; in some worlds records are deleted, by DeleteRecords
or by retention.  After the faults, nothing but finished segments is left in the store, and one more
consumer reads everything from both tiers.

The metadata of remote segments is in the internal topic, as in every cluster; nodes without others
are told to use it, too: a SQLite file would be outside of the simulated disk, and the memory of a
process would end with it.

Not here: the checkers of the tier (tiered_node_checkers.py).
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.sim.workloads.deleting import RecordDeleter
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.world import Machine
from quipu.sim.worlds.node import (
    CONVERGE_SECONDS_MAX,
    NodeWorld,
    NodeWorldPlan,
    node_of,
    partitions_of,
    plan_of,
)
from quipu.sim.worlds.node_checkers import PartitionView
from quipu.sim.worlds.tiered_node_checkers import TierChecker

# In worlds of two chains the leader of a partition may be deposed, and reach its metadata still.
SHAPES: Final = ((1,), (2,), (3,), (3,), (2, 2), (2, 2))
SEGMENT_SIZES: Final = (2600, 4000)  # of the metadata topic, too: more than any command
RETENTION_BYTES: Final = 20_000
NO_LIMIT: Final = -1
FAULT_PAUSE_MAX: Final = 0.6  # seconds
PAYLOAD_MAX: Final = 450
PAUSE_SECONDS_MAX: Final = 0.3  # of clients: each segment costs a node more than its records
TIERED: Final = (
    "remote.log.storage.system.enable=true", "remote.log.storage.url=s3://sim",
    "rlmm.config.metadata.storage.url=topic:",
    "rlmm.config.remote.log.metadata.topic.num.partitions=1",
    "remote.log.manager.task.interval.ms=200", "remote.log.manager.task.retry.backoff.ms=50",
    "remote.log.manager.task.retry.backoff.max.ms=1000", "remote.log.orphan.grace.ms=4000",
    "log.retention.check.interval.ms=200", "log.cleaner.backoff.ms=300",
    "offsets.topic.num.partitions=1",
)


class TieredNodeWorld(NodeWorld):
    """See the module."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.deletes_records = False
        self.retention_bytes = NO_LIMIT
        super().__init__(seed, echo=echo)
        self.deleters: dict[str, RecordDeleter] = {}
        self.tier = TierChecker(
            self.world.bucket, self._led, lambda: self.world.loop.now, self._may_start)
        self.world.checkers.append(self.tier)
        self.load.pause_max, self.load.payload_max = PAUSE_SECONDS_MAX, PAYLOAD_MAX
        self.load.deleted_end = lambda partition: self.tier.log_starts.get(
            f"{partition[0]}-{partition[1]}", 0)

    def _make_plan(self) -> NodeWorldPlan:
        plan, dice = plan_of(self.world, SHAPES), self.world.dice.fork("tier")
        kind = dice.below(3)
        self.deletes_records = kind == 0
        self.retention_bytes = RETENTION_BYTES if kind == 1 else NO_LIMIT
        return dataclasses.replace(
            plan, segment_size=dice.choose(SEGMENT_SIZES), is_compacting=dice.flip(0.25),
            malice=dataclasses.replace(
                plan.malice, store_faults=dice.flip(0.8), pause_max=FAULT_PAUSE_MAX),
            settings=(*plan.settings, *TIERED),
            topic=(("remote_storage_enable", "true"),
                   ("local_retention_bytes", str(dice.choose([5000, 15_000]))),
                   ("retention_bytes", str(self.retention_bytes))))

    # -- clients

    async def _load(self) -> None:
        await super()._load()
        world, dice = self.world, self.world.dice.fork("late")
        for index in range(self.plan.partitions):
            partition = ("t", index)
            if self.deletes_records:
                deleter = RecordDeleter(self.client(f"d{index}"), self.load, partition)
                self.deleters[f"t-{index}"] = deleter
                world.run(deleter.run(), deleter.client.name)
            for number in range(1 + dice.below(2)):
                name = f"l{index}{number}"
                world.run(self._consume_late(
                    name, partition, dice.between(0.5, self.plan.fault_seconds)), name)

    async def _consume_late(
        self, name: str, partition: TopicPartition, seconds: float
    ) -> None:
        await asyncio.sleep(seconds)
        self._consume(name, partition)

    # -- the state of nodes

    def _changed(self, machine: Machine) -> Iterable[PartitionView]:
        for view in super()._changed(machine):
            self.tier.changed(view)
            yield view

    def _led(
        self, machine: Machine
    ) -> Sequence[tuple[RemoteLogMetadataManager, TopicIdPartition]]:
        """What the metadata manager of a machine's process serves from memory."""
        tiering = None if machine.program is None else node_of(machine).tiering
        if tiering is None:
            return ()
        return [(tiering.metadata, led.partition) for led in tiering.log.led()
                if tiering.leads(led.partition)]

    def _may_start(self, view: PartitionView, start: int) -> bool:
        """Whether records before `start` may be deleted."""
        if self.deletes_records:
            return view.name in self.deleters and start <= self.deleters[view.name].requested
        if self.retention_bytes == NO_LIMIT:
            return False
        log = view.log
        kept = sum(each.segment_size_bytes for each in self.tier.metadata.finished(view.name)
                   if each.end_offset >= start)
        return self.retention_bytes <= kept + sum(
            segment.size for segment in log.segments
            if segment is log.segments[-1] or segment.end_offset >= log.tiered.end_offset)

    # -- in the end

    def _heal(self) -> None:
        super()._heal()
        for machine in self.world.machines.values():
            machine.clock.step_ms = 0  # or orphans would be too young for a long time

    def _unsettled(self) -> str:
        if why := super()._unsettled() or self.tier.unsettled():
            return why
        for machine in self.world.machines.values():
            for part in partitions_of(machine):
                if part.is_leader and part.tier.segments(1):
                    return f"{machine.name} {part.topic_partition}: a segment is not copied yet"
        return ""

    def _settled(self) -> None:
        """Read everything once more, most of it from the tier."""
        super()._settled()
        count = len(self.consumers)
        for index in range(self.plan.partitions):
            self._consume(f"z{index}", ("t", index))
        self.world.run_until(lambda: not self._unsettled(), CONVERGE_SECONDS_MAX, "read again")
        for consumer in self.consumers[count:]:
            self.load.history.missing(consumer.partition, [consumer.client.name])
