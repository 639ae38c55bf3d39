"""What the heads of sealed partitions do so that their topic can become diskless (D30, D32).

    sealing     wait until the configuration of the sealed epoch is committed: then all replicas
                have every record, and no earlier head can commit any more
    copying     complete the active segment, and let the tier copy all that it lacks
                (broker/tiering); then enter the log in the control plane
    switching   report to the controller that the partition is ready, with every heartbeat

The controller switches the topic when all of its heads have reported.  Whoever leads a partition
next begins from the start, and finds out how far the last head came: nothing is remembered here.

Invariants
    broker.diskless.M1  a head reports that a partition is ready only after the tier has every
                        record, which the log says, and the control plane has the log with its
                        producers in the epoch of that very head (diskless.C12)
    broker.diskless.M2  in a sealed epoch no record is appended, removed or expired: so all heads
                        of a sealed partition enter the same

Not here: what sealed partitions refuse (broker/partitions/sealing.py), the switch
(controller/migration.py), copies (broker/tiering).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quipu.broker.cluster.migrations import MigrationProgress
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.controller.topic_state import Topic
from quipu.diskless.control_plane.interface import AdoptedLog, AdoptedProducer, ControlPlane
from quipu.diskless.values import LogKey
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset, ProducerId, TimestampMs
from quipu.model.migration import MigrationStep
from quipu.model.partition_log import PartitionLog
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.spawn import spawn

if TYPE_CHECKING:  # it holds all of these
    from quipu.broker.serving.context import Broker
    from quipu.broker.tiering.opening import Tiering

PASS_SECONDS: Final = 0.2  # between two looks at the sealed partitions of this node
AT_ONCE: Final = 8  # partitions

Key = tuple[UUID, int]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationServices:
    """What migrations need of a node."""

    plane: ControlPlane
    clock: Clock
    topics: Callable[[UUID], Topic | None]
    find: Callable[[UUID, int], ReplicatedPartition | None]
    copy_soon: Callable[[PartitionLog], str]  # the tier looks at it; why it failed the last time
    report: Callable[[dict[Key, tuple[int, MigrationProgress]]], None]


class Migrations:
    """The sealed partitions that one node leads; follows the cluster's metadata."""

    def __init__(self, services: MigrationServices) -> None:
        self._services = services
        self._sealed: dict[UUID, None] = {}  # topics
        self._changed = asyncio.Event()
        self._entered: dict[Key, int] = {}  # the epochs in which this node has entered logs
        self._limited = LimitedLog(_log, services.clock.monotonic)

    async def run(self) -> None:
        """Take steps while there are sealed topics, until cancelled."""
        while True:
            if not self._sealed:
                self._entered.clear()
                self._services.report({})
                await self._changed.wait()
            self._changed.clear()
            try:
                await self.make_pass()
            except Exception:  # noqa: BLE001 a bug in one topic must not stop the others
                _log.exception("migrations to diskless topics failed")
            try:
                async with asyncio.timeout(PASS_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def make_pass(self) -> None:
        """One step of every sealed partition that this node leads, and the report of all."""
        led = list(self._led())
        found: dict[Key, tuple[int, MigrationProgress]] = {}
        for start in range(0, len(led), AT_ONCE):
            some = led[start : start + AT_ONCE]
            results = await asyncio.gather(*(self._step(*each) for each in some))
            for (topic, partition), result in zip(some, results, strict=True):
                if result is not None:
                    number = partition.topic_partition.partition
                    found[topic.topic_id, number] = result
        self._services.report(found)

    def _led(self) -> Iterator[tuple[Topic, ReplicatedPartition]]:
        for topic_id in list(self._sealed):
            topic = self._services.topics(topic_id)
            for number in range(0 if topic is None else len(topic.partitions)):
                partition = self._services.find(topic_id, number)
                if topic is not None and partition is not None and partition.is_sealed and (
                        partition.is_active_leader):
                    yield topic, partition

    async def _step(
        self, topic: Topic, partition: ReplicatedPartition
    ) -> tuple[int, MigrationProgress] | None:
        """How far a partition is, after a step; None if this node leads another version by now."""
        number, replicas = partition.topic_partition.partition, partition.replica_set
        assert replicas is not None, partition
        step, trouble = MigrationStep.SEALING, ""
        try:
            step, trouble = await self._advance(topic, partition)
        except QuipuError as error:
            trouble = str(error)
            self._limited.warning(
                f"migrate {partition.topic_partition}", "%s: it does not become diskless yet, "
                "because a step failed, and is tried again: %s", partition.topic_partition, error)
            step = MigrationStep.COPYING if partition.is_readable else MigrationStep.SEALING
        if partition.replica_set is not replicas or not partition.is_active_leader:
            return None
        left = 0 if step is MigrationStep.SWITCHING else bytes_left(partition)
        return replicas.version, MigrationProgress(number, step, left, trouble)

    async def _advance(
        self, topic: Topic, partition: ReplicatedPartition
    ) -> tuple[MigrationStep, str]:
        """The step that a partition is in, and what is in its way."""
        log = partition.log
        if not partition.is_readable or partition.high_watermark < log.end_offset:
            return MigrationStep.SEALING, ""
        if not is_tiered(partition):
            if not partition.tier.segments(1) and has_records(partition):
                partition.internal.roll(self._services.clock.now_ms())
            return MigrationStep.COPYING, self._services.copy_soon(partition)
        return await self._enter(topic, partition)

    async def _enter(
        self, topic: Topic, partition: ReplicatedPartition
    ) -> tuple[MigrationStep, str]:
        """Enter the log in the control plane, unless that is done (broker.diskless.M1)."""
        services, epoch = self._services, partition.leader_epoch
        key = topic.topic_id, partition.topic_partition.partition
        if self._entered.get(key) == epoch:
            return MigrationStep.SWITCHING, ""
        adopted = adopted_log(partition)
        await services.plane.create_logs(topic.topic_id, topic.name, len(topic.partitions))
        if not await services.plane.adopt_log(adopted, services.clock.now_ms()):
            return MigrationStep.COPYING, (
                f"the control plane does not take the log in epoch {epoch}: a later head has "
                "entered it, or it has records already")
        self._entered[key] = epoch
        _log.info("%s is ready to become diskless, at offset %d", partition.topic_partition,
                  adopted.end_offset)
        return MigrationStep.SWITCHING, ""

    # -- changes of the metadata

    def on_topic_created(self, topic: Topic) -> None:
        self.on_replicas_changed(topic)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        """Do nothing: a sealed topic gets no partitions."""

    def on_topic_deleted(self, topic: Topic) -> None:
        self._sealed.pop(topic.topic_id, None)

    def on_config_changed(self, topic: Topic) -> None:
        """Do nothing: the next step knows."""

    def on_replicas_changed(self, topic: Topic) -> None:
        """Begin with a topic that is sealed; end with one that is not any more."""
        if topic.is_migrating:
            self._sealed[topic.topic_id] = None
            self._changed.set()
        elif self._sealed.pop(topic.topic_id, self) is None:
            self._changed.set()

    def on_brokers_changed(self) -> None:
        """Do nothing: `on_replicas_changed` tells who leads."""


def is_tiered(partition: ReplicatedPartition) -> bool:
    """Whether the tier has every record that the log has."""
    log = partition.log
    return max(log.tiered.end_offset, log.log_start_offset) >= log.end_offset


def has_records(partition: ReplicatedPartition) -> bool:
    """Whether the active segment has records that the tier lacks."""
    log = partition.log
    segments = log.segments
    return len(segments) > 0 and log.end_offset > max(
        segments[-1].base_offset, log.tiered.end_offset)


def bytes_left(partition: ReplicatedPartition) -> int:
    """Bytes of the segments that hold records which the tier lacks."""
    log = partition.log
    tiered = max(log.tiered.end_offset, log.log_start_offset)
    size = sum(segment.size for segment in log.segments[:-1] if segment.end_offset > tiered)
    return size + (log.segments[-1].size if has_records(partition) else 0)


def adopted_log(partition: ReplicatedPartition) -> AdoptedLog:
    """What the control plane is told of a sealed partition, all of which the tier has."""
    log = partition.log
    assert is_tiered(partition), partition.topic_partition  # broker.diskless.M1
    return AdoptedLog(
        LogKey(partition.topic_id, partition.topic_partition.partition),
        epoch=partition.leader_epoch, epochs=tuple(partition.tier.epochs()),
        log_start_offset=log.log_start_offset, end_offset=Offset(log.end_offset),
        producers=[
            AdoptedProducer(ProducerId(producer_id), epoch, batches, TimestampMs(last_seen_ms))
            for producer_id, epoch, last_seen_ms, batches in log.producers.histories()])


def start_migrations(
    broker: "Broker", tiering: "Tiering", *, clock: Clock
) -> "asyncio.Task[None]":
    """The task of a node that has a remote tier and diskless topics."""
    diskless, cluster, partitions = broker.diskless, broker.cluster, broker.partitions
    assert diskless is not None

    def topic_of(topic_id: UUID) -> Topic | None:
        return cluster.state.topics_by_id.get(topic_id)  # a snapshot replaces the state

    migrations = Migrations(MigrationServices(
        plane=diskless.plane, clock=clock, topics=topic_of,
        find=lambda topic_id, number: partitions.find_replicated(topic_id.bytes, number),
        copy_soon=tiering.log.look_soon, report=cluster.report_migrations))
    cluster.follow(migrations)
    return spawn(migrations.run(), "migrate topics to diskless")
