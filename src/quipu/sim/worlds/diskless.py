"""A world of diskless topics: many brokers, one control plane, one object store, and their faults.

Every broker runs the real writer, reader and cleaner (diskless_broker.py).  Idempotent producers
with several batches in flight and plain ones write to the same partitions through all of them, and
move when a connection is lost or for no reason; readers move, too.  Records are deleted by clients
or by retention, topics come and go, old objects are rewritten and deleted meanwhile.  Store and
control plane are slow, refuse requests, and carry them out without a response.

After the faults everything acknowledged is read from every broker, and the store holds nothing
that is not referred to.

Not here: the checkers (diskless_checkers.py), the faults (diskless_nemesis.py), the rest of a node.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from quipu.diskless.cleaning.limits import CleaningLimits
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.objects.names import has_batches
from quipu.diskless.reading.reader import ReaderLimits
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.sim.nemesis import Malice
from quipu.sim.trace import Trace
from quipu.sim.twins.control_plane import SimDatabase, SimPlane
from quipu.sim.workloads.client import BrokerAddress, Client
from quipu.sim.workloads.deleting import RecordDeleter
from quipu.sim.workloads.end_watch import EndWatch
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.roaming import RoamingConsumer, roam
from quipu.sim.workloads.traffic import (
    ALL,
    Load,
    produce_idempotently,
    produce_plainly,
)
from quipu.sim.workloads.windowed_producer import WindowedProducer
from quipu.sim.world import Violation, World
from quipu.sim.worlds.diskless_broker import CLIENT_PORT, BrokerPlan, DisklessBroker, TopicList
from quipu.sim.worlds.diskless_checkers import PlaneChecker
from quipu.sim.worlds.diskless_nemesis import DisklessNemesis

TOPIC: Final = "t"
NO_LIMIT: Final = -1
RETENTION_BYTES: Final = 8000
READY_SECONDS_MAX: Final = 20.0
CONVERGE_SECONDS_MAX: Final = 120.0
PAYLOAD_MAX: Final = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class DisklessWorldPlan:
    """The parameters of one seed's world."""

    brokers: int
    partitions: int
    fault_seconds: float
    deletes_records: bool
    retention_bytes: int
    has_short_topics: bool
    has_end_watch: bool  # its requests make brokers ask for bounds
    has_clock_steps: bool
    limits: BrokerPlan
    malice: Malice

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the brokers: b-0, b-1, ..."""
        return tuple(f"b-{number}" for number in range(self.brokers))


class DisklessWorld:
    """Brokers, control plane, store, clients and faults."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.world = world = World(seed, echo=echo)
        self.plan = plan = plan_of(world)
        self.load = Load(payload_max=PAYLOAD_MAX)
        self.catalog = TopicList(plan.names)
        self.database = SimDatabase(
            world.net, world.dice.fork("plane"), MemoryControlPlane())
        self.checker = PlaneChecker(
            self.database, world.bucket, lambda: world.loop.now,
            grace_seconds=0.0 if plan.has_clock_steps
            else plan.limits.cleaning.object_grace_ms / 1000)
        self.checker.may_delete = self._may_delete
        self.load.deleted_end = self._deleted_end
        self.load.history.on_acked = self._acked
        self.consumers: list[RoamingConsumer] = []
        self.windows: list[WindowedProducer] = []
        self.deleters: dict[int, RecordDeleter] = {}
        self.places = [BrokerAddress(name, CLIENT_PORT) for name in plan.names]
        for name in plan.names:
            world.machine(name, partial(
                DisklessBroker, database=self.database, catalog=self.catalog, plan=plan.limits))
        self.nemesis = DisklessNemesis(
            world, plan.malice, self.database, has_clock_steps=plan.has_clock_steps)

    @property
    def trace(self) -> Trace:
        return self.world.trace

    @property
    def step_count(self) -> int:
        return self.world.loop.step_count

    @property
    def now(self) -> float:
        return self.world.loop.now

    def run(self) -> None:
        """Run both phases; raises `Violation`."""
        try:
            self._run()
        finally:
            self.world.end()

    def _run(self) -> None:
        world = self.world
        world.record("plan", self.plan)
        for machine in world.machines.values():
            machine.boot()
        world.run(self._load(), "load")
        world.run_until(lambda: bool(self.consumers), READY_SECONDS_MAX, "ready")
        world.run(self.nemesis.run(), "nemesis")
        world.run_for(self.plan.fault_seconds)
        self.nemesis.heal()
        world.run_for(2.0)
        self.load.goes_on = False
        self.database.drop_listeners()  # nobody is told of the last commits
        self._converge("converged")
        self._read_again()

    def _converge(self, what: str) -> None:
        try:
            self.world.run_until(lambda: not self._unsettled(), CONVERGE_SECONDS_MAX, what)
        except Violation as error:
            if not (why := self._unsettled()):
                raise
            raise Violation(f"{error}: {why}") from error

    # -- clients

    def client(self, name: str) -> Client:
        return Client(self.world, name, self.places)

    def log(self, partition: TopicPartition) -> LogKey:
        log = self.catalog.log(*partition)
        assert log is not None
        return log

    async def _load(self) -> None:
        """Create the topic, then start all clients."""
        world, plan, dice = self.world, self.plan, self.world.dice.fork("load")
        admin = self.database.client(world.net.door(world.outside, "admin"))
        await self._create(admin, TOPIC, plan.partitions, plan.retention_bytes)
        roaming: list[tuple[Client, TopicPartition]] = []
        for index in range(plan.partitions):
            partition = (TOPIC, index)
            for number in range(2 + dice.below(2)):
                self._produce_window(f"w{index}{number}", partition)
                roaming.append((self.windows[-1].client, partition))
            for number in range(1 + dice.below(2)):
                client = self.client(f"p{index}{number}")
                roaming.append((client, partition))
                if dice.flip(0.5):
                    world.run(produce_idempotently(client, self.load, partition), client.name)
                else:
                    world.run(produce_plainly(client, self.load, partition, acks=ALL), client.name)
            if plan.has_end_watch:
                watch = EndWatch(self.client(f"e{index}"), self.load, partition)
                world.run(watch.run(), watch.client.name)
                roaming.append((watch.client, partition))
            if plan.deletes_records:
                deleter = RecordDeleter(self.client(f"d{index}"), self.load, partition)
                self.deleters[index] = deleter
                world.run(deleter.run(), deleter.client.name)
            for number in range(1 + dice.below(3)):
                self._consume(f"c{index}{number}", partition)
                roaming.append((self.consumers[-1].client, partition))
        world.run(roam(roaming, dice, lambda: self.load.goes_on), "roam")
        if plan.has_short_topics:
            world.run(self._short_topics(admin), "short topics")

    def _produce_window(self, name: str, partition: TopicPartition) -> None:
        producer = WindowedProducer(self.client(name), self.load, partition)
        self.windows.append(producer)
        self.world.run(producer.run(), name)

    def _consume(self, name: str, partition: TopicPartition) -> RoamingConsumer:
        consumer = RoamingConsumer(
            self.client(name), self.load, partition,
            boots=lambda host: self.world.machines[host].boots)
        self.consumers.append(consumer)
        self.world.run(consumer.run(), name)
        return consumer

    async def _create(
        self, admin: SimPlane, topic: str, partitions: int, retention_bytes: int
    ) -> None:
        topic_id = self.world.dice.fork(f"topic/{topic}").uuid()
        while True:
            try:
                await admin.create_logs(topic_id, topic, partitions)
                break
            except ControlPlaneUnavailable:
                await asyncio.sleep(0.1)
        self.catalog.topics[topic] = (topic_id, partitions)
        self.catalog.retention[topic_id] = (NO_LIMIT, retention_bytes)

    async def _short_topics(self, admin: SimPlane) -> None:
        """Create topics, produce to them, and delete them while producers write."""
        dice, number = self.world.dice.fork("short"), 0
        while self.load.goes_on:
            topic = f"s{number}"
            number += 1
            await self._create(admin, topic, 1, NO_LIMIT)
            try:
                async with asyncio.timeout(dice.between(0.2, 2.0)):
                    await produce_plainly(self.client(f"{topic}p"), self.load, (topic, 0), acks=ALL)
            except TimeoutError:
                pass
            topic_id, _ = self.catalog.topics.pop(topic)
            while True:
                try:
                    await admin.delete_topic(topic_id, self.world.machines["b-0"].clock.now_ms())
                    break
                except ControlPlaneUnavailable:
                    await asyncio.sleep(0.1)

    # -- what may be deleted

    def _may_delete(self, log: LogKey, start: int) -> bool:
        if self.plan.deletes_records and log.partition in self.deleters:
            return start <= self.deleters[log.partition].requested
        bounds = self.checker.bounds(log)
        kept = self.plan.retention_bytes
        return kept >= 0 and bounds is not None and bounds.size >= kept

    def _deleted_end(self, partition: TopicPartition) -> int:
        bounds = self.checker.bounds(self.log(partition))
        return 0 if bounds is None else int(bounds.log_start_offset)

    def _acked(self, partition: TopicPartition, offset: int) -> None:
        log = self.catalog.log(*partition)
        if log is not None:
            self.checker.acked(log, offset)

    # -- in the end

    def _unsettled(self) -> str:
        """Why the world has not converged yet, for people; empty if it has."""
        for machine in self.world.machines.values():
            if not machine.is_up:
                return f"{machine.name} has not started"
        if len(self.catalog.topics) > 1:
            return "a topic is not deleted yet"
        for producer in self.windows:
            if producer.window:
                return f"{producer.client.name} has {len(producer.window)} batches in flight"
        for consumer in self.consumers:
            end = self.checker.logs[self.log(consumer.partition)].end
            if consumer.position < end:
                return f"{consumer.client.name} has read to {consumer.position} of {end}"
        return self.checker.left_over(lambda key: not has_batches(key))

    def _read_again(self) -> None:
        """Read everything from every broker once more, and compare it with what was committed."""
        history = self.load.history
        for index in range(self.plan.partitions):
            for number, place in enumerate(self.places):
                consumer = self._consume(f"z{index}{number}", (TOPIC, index))
                consumer.read_from = place
        self._converge("read again")
        for consumer in self.consumers:
            history.missing(consumer.partition, [consumer.client.name])
        self.checker.check_objects()
        for partition in history.partitions():
            log = self.catalog.log(*partition)
            if log is not None:
                self.checker.check_log(log)
                self.checker.got(log, history.values(partition))
        self.world.record("end", (
            f"{history.acked_count} acknowledged, {history.read_count} read, "
            f"{self.checker.refused_count} refused, {self.checker.moved_count} runs moved, "
            f"{self.checker.deleted_count} objects deleted"))


def plan_of(world: World) -> DisklessWorldPlan:
    """Everything about a world that is decided before it begins."""
    dice = world.dice.fork("plan")
    kind = dice.below(4)
    brokers = dice.choose([1, 2, 3, 3, 4])
    cleaning = _cleaning(dice.fork("cleaning").choose)
    return DisklessWorldPlan(
        brokers=brokers, partitions=1 + dice.below(2), fault_seconds=dice.between(3, 8),
        deletes_records=kind == 0, retention_bytes=RETENTION_BYTES if kind == 1 else NO_LIMIT,
        has_short_topics=dice.flip(0.5), has_end_watch=dice.flip(0.6),
        has_clock_steps=dice.flip(0.3),
        limits=BrokerPlan(
            writing=_writing(dice.fork("writing").choose),
            cleaning=cleaning,
            reading=_reading(dice.fork("reading").choose, cleaning)),
        malice=Malice(
            pause_max=dice.choose([0.4, 0.8]), down_max=dice.choose([1, 2, 4]),
            haste=dice.choose([1.0, 2.0, 5.0]), kills=dice.flip(0.8), stops=dice.flip(0.6),
            pauses=dice.flip(0.7), cuts=dice.flip(0.6), storms=dice.flip(0.5),
            outages=dice.flip(0.3), store_faults=dice.flip(0.9), power_losses=False,
            slow_disks=False, clock_steps=False, ambushes=False))


def _writing(choose: Callable[[list[int]], int]) -> WriterLimits:
    return WriterLimits(
        flush_interval_ms=choose([5, 30, 150]), flush_bytes=choose([600, 3000, 1 << 20]),
        uploads_max=choose([1, 2, 5]), buffer_bytes=choose([1500, 10_000, 1 << 20]),
        overflow_bytes=choose([2000, 1 << 20]), attempt_ms_max=choose([200, 1000, 5000]),
        upload_ms_max=choose([300, 1500, 8000]), commit_ms_max=choose([300, 1500, 8000]),
        receipts_ms=choose([50, 1000]))


def _reading(choose: Callable[[list[int]], int], cleaning: CleaningLimits) -> ReaderLimits:
    return ReaderLimits(
        cache_bytes=choose([0, 2000, 20_000, 1 << 20]), hot_reads_max=choose([1, 4]),
        cold_reads_max=choose([1, 4]), pending_max=choose([3, 1000]),
        read_ms_max=choose([500, 5000]), coordinates_ms_max=cleaning.coordinates_ms)


def _cleaning(choose: Callable[[list[int]], int]) -> CleaningLimits:
    coordinates_ms = choose([200, 1500])
    return CleaningLimits(
        coordinates_ms=coordinates_ms, object_grace_ms=2 * coordinates_ms,
        cleaner_interval_ms=choose([60, 300]), retention_interval_ms=choose([100, 500]),
        # Much less than a commit may take: writers find their objects condemned.
        orphan_grace_ms=choose([150, 800, 4000]), give_up_ms=100,
        is_rewriting=choose([0, 1, 1]) == 1, rewrite_age_ms=choose([100, 1000]),
        rewrite_small_bytes=choose([300, 2000]), rewrite_live_share=choose([20, 60]) / 100,
        rewrite_object_bytes=choose([8000, 40_000]), rewrite_pass_bytes=100_000,
        rewrite_objects_min=choose([2, 4]))
