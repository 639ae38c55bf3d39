"""A world of real nodes: several `broker.node.Node`s, Kafka clients, and faults.

What the seed decides: how many nodes, chains and partitions there are, how they flush, how large
segments and windows are, who produces and how, and every fault.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from quipu.broker.node import Node
from quipu.broker.partition import Partition
from quipu.model.chains import MemberState
from quipu.model.errors import Code
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.sim_disk import BROKEN
from quipu.sim.checkers import PartitionView, StoredLogs
from quipu.sim.client import Client, Place
from quipu.sim.end_watch import EndWatch
from quipu.sim.frames import Disconnected
from quipu.sim.group_workload import Bookmark
from quipu.sim.history import TopicPartition
from quipu.sim.nemesis import Malice, Nemesis
from quipu.sim.trace import Trace
from quipu.sim.windowed_producer import WindowedProducer
from quipu.sim.workload import (
    ALL,
    Consumer,
    Load,
    create_topic,
    create_topics,
    produce_idempotently,
    produce_plainly,
)
from quipu.sim.world import Machine, Violation, World
from quipu.wire.messages.k10001_create_chain import CreateChainRequest

CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9192
DATA: Final = "data"
VOTERS_MAX: Final = 3
READY_SECONDS_MAX: Final = 60.0
CONVERGE_SECONDS_MAX: Final = 60.0
QUICK: Final = (  # virtual time is cheap, but every heartbeat is work
    "broker.heartbeat.interval.ms=150", "broker.session.timeout.ms=900", "broker.lease.ms=600",
    "controller.quorum.election.timeout.ms=400", "controller.quorum.heartbeat.interval.ms=100",
    "chain.heartbeat.interval.ms=100", "chain.cold.start.wait.ms=1500",
    "peer.request.timeout.ms=1000", "controlled.shutdown.timeout.ms=2000",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one seed's world looks like."""

    chains: tuple[int, ...]  # how many nodes each has
    partitions: int
    fault_seconds: float
    malice: Malice
    settings: tuple[str, ...] = ()
    segment_size: int = 1 << 30
    index_interval: int = 4096

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes: a-0, a-1, ..., b-0, ..."""
        return names_of(self.chains)


class RealNode:
    """A `Program`: one node, on the doors of its machine."""

    def __init__(self, machine: Machine, settings: BrokerSettings) -> None:
        self.node = Node(
            settings, clock=machine.clock, rng=machine.dice.fork(f"boot/{machine.boots}"),
            disk=machine.disk, net=machine.door, with_http=False)

    async def start(self) -> None:
        await self.node.start()

    async def stop(self) -> None:
        await self.node.stop()


class NodeWorld:
    """Nodes, their clients and their nemesis."""

    def __init__(self, seed: int, *, tell: Callable[[str], None] | None = None) -> None:
        self.world = World(seed, tell=tell)
        self.plan = plan_of(self.world)
        malice = self.plan.malice
        if malice.full_disks:
            self.world.allowed_errors += ("no space left", "the disk is full")
        if malice.failing_syncs:
            self.world.allowed_errors += ("a sync failed",)
        if malice.failing_logs:
            self.world.allowed_errors += (BROKEN,)
        self.load = Load()
        self.consumers: list[Consumer] = []
        self.bookmarks: list[Bookmark] = []
        for index, name in enumerate(self.plan.names):
            self.world.machine(name, partial(RealNode, settings=self._settings(index, name)))
        self.places = [Place(name, CLIENT_PORT) for name in self.plan.names]
        self.nemesis = Nemesis(self.world, self.plan.malice, self._leader, self._is_whole)
        self._names = self.plan.names
        self._marks: dict[str, dict[Partition, object]] = {name: {} for name in self._names}
        self.logs = StoredLogs(self._changed)
        self.world.checkers.append(self.logs)
        self.load.history.on_acked = self.logs.acknowledged

    def _settings(self, index: int, name: str) -> BrokerSettings:
        names = self.plan.names
        settings = [f"node.id={index + 1}", f"node.name={name}",
                    f"listeners={name}:{CLIENT_PORT}", f"log.dirs={DATA}",
                    "auto.create.topics.enable=false", *QUICK, *self.plan.settings]
        if len(names) > 1:
            voters = ",".join(f"{place + 1}@{voter}:{PEER_PORT}"
                              for place, voter in enumerate(names[:VOTERS_MAX]))
            settings += [f"peer.listener={name}:{PEER_PORT}", f"controller.quorum.voters={voters}",
                         "peer.secret=a secret of all nodes"]
        return dataclasses.replace(  # smaller than anybody may ask for: so more happens
            broker_settings(from_assignments(settings)),
            log_segment_bytes=self.plan.segment_size,
            log_index_interval_bytes=self.plan.index_interval)

    def client(self, name: str) -> Client:
        return Client(self.world, name, self.places)

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
        """Both phases; raises `Violation`."""
        try:
            self._run()
        finally:
            self.world.end()

    def _run(self) -> None:
        world, plan = self.world, self.plan
        world.tell("plan", plan)
        for machine in world.machines.values():
            machine.boot()
        world.run(self._load(), "load")
        world.run_until(lambda: bool(self.consumers), READY_SECONDS_MAX, "ready")
        world.run(self.nemesis.run(), "nemesis")
        world.run_for(plan.fault_seconds)
        self.nemesis.heal()
        world.run_for(2.0)
        self.load.goes_on = False
        try:
            world.run_until(lambda: not self._unsettled(), CONVERGE_SECONDS_MAX, "converged")
        except Violation as error:
            raise Violation(f"{error}: {self._unsettled()}") from error
        self._settled()

    # -- clients

    async def _load(self) -> None:
        """Make chains and topics, then let everyone go."""
        admin = self.client("admin")
        if len(self.plan.names) > 1:
            for place in range(len(self.plan.chains)):
                await self._create_chain(admin, chr(ord("a") + place))
        await create_topic(admin, self.load, "t", partitions=self.plan.partitions)
        world, dice = self.world, self.world.dice.fork("load")
        for index in range(self.plan.partitions):
            partition = ("t", index)
            for number in range(1 + dice.below(2)):
                client = self.client(f"p{index}{number}")
                world.run(self._producer(client, partition, dice.below(4)), client.name)
            client = self.client(f"w{index}")
            world.run(WindowedProducer(client, self.load, partition).run(), client.name)
            watch = EndWatch(self.client(f"e{index}"), self.load, partition)
            world.run(watch.run(), watch.client.name)
            for number in range(1 + dice.below(2)):
                self._consume(f"c{index}{number}", partition)
        world.run(create_topics(self.client("admin2"), self.load), "create topics")
        for number in range(2):
            self.bookmarks.append(Bookmark(self.client(f"g{number}"), self.load))
            world.run(self.bookmarks[-1].run(), f"g{number}")

    async def _create_chain(self, admin: Client, chain: str) -> None:
        names = [name for name in self.plan.names if name.startswith(f"{chain}-")]
        while True:
            try:
                answer = await admin.ask(admin.strangers(), CreateChainRequest(
                    name=chain, node_names=names, timeout=3000), 0)
            except Disconnected:
                code = int(Code.NETWORK_EXCEPTION)
            else:
                code = answer.error_code
                self.world.tell("chain", f"{chain} {Code(code).name} {answer.error_message or ''}")
            if code in (Code.NONE, Code.DUPLICATE_RESOURCE):
                return
            await asyncio.sleep(0.3)

    async def _producer(self, client: Client, partition: TopicPartition, kind: int) -> None:
        if kind == 0:
            await produce_idempotently(client, self.load, partition)
        elif kind == 1:
            await WindowedProducer(client, self.load, partition).run()
        else:
            await produce_plainly(client, self.load, partition, acks=ALL if kind == 2 else 1)

    def _consume(self, name: str, partition: TopicPartition) -> None:
        consumer = Consumer(self.client(name), self.load, partition)
        self.consumers.append(consumer)
        self.world.run(consumer.run(), name)

    # -- what nodes have

    def _changed(self, machine: Machine) -> Iterable[PartitionView]:
        """The partitions of which anything is not as it was when this was last asked."""
        marks = self._marks[machine.name]
        for part in partitions_of(machine):
            log = part.log
            mark = (log.log_end, log.flushed_end, part.commits.committed_log, part.leader_epoch,
                    part.is_serving, part.is_leading, part.is_alone, part.is_fresh, part.is_sure)
            if marks.get(part) != mark:
                marks[part] = mark
                if part.failed is None and log.is_open:
                    yield self._view(part)

    def _view(self, part: Partition) -> PartitionView:
        log, replicas = part.log, part.replica_set
        kept = log.flushed_end if log.is_durable else log.log_end
        serving = () if replicas is None else replicas.serving
        return PartitionView(
            name=str(part.topic_partition), log=log, kept_end=kept,
            committed=kept if part.is_alone else part.commits.committed_log,
            high_watermark=part.high_watermark, epoch=part.leader_epoch,
            is_serving=part.is_serving, is_leading=part.is_leading and not part.is_fresh,
            is_giving=part.is_serving and part.is_sure,
            serving=tuple(self._names[node_id - 1] for node_id in serving))

    def _leader(self) -> Machine | None:
        """A node that leads something just now."""
        for machine in self.world.machines.values():
            if machine.is_up and machine.is_running and any(
                    part.is_leading for part in partitions_of(machine)):
                return machine
        return None

    def _is_whole(self) -> bool:
        """Does every node serve, in the very process that runs, and does everybody know?"""
        machines = self.world.machines.values()
        if not all(machine.is_up and machine.is_running for machine in machines):
            return False
        lives = {node.settings.own_id: node.broker.cluster.incarnation
                 for node in map(node_of, machines)}
        return all(
            member.state is MemberState.SERVING and lives[member.node_id] == member.incarnation
            for machine in machines
            for chain in node_of(machine).broker.cluster.state.chains.values()
            for member in chain.members) and not any(
                node_of(machine).broker.cluster.state.detached() for machine in machines)

    def _unsettled(self) -> str:
        """What is still missing until everyone serves the same and has read all; or nothing."""
        machines = self.world.machines.values()
        for machine in machines:
            if not machine.is_up:
                return f"{machine.name} has not started"
        for bookmark in self.bookmarks:
            if not bookmark.is_done:
                return "a group has no coordinator"
        for consumer in self.consumers:
            end = max(self.load.history.end(consumer.partition), consumer.high_watermark)
            if consumer.position < end:
                return f"{consumer.client.name} has read to {consumer.position} of {end}"
        ends: dict[str, dict[str, tuple[int, int]]] = {}
        for machine in machines:
            for chain in node_of(machine).broker.cluster.state.chains.values():
                if any(member.state is not MemberState.SERVING for member in chain.members):
                    return f"{machine.name} sees {chain}"
            if detached := node_of(machine).broker.cluster.state.detached():
                return f"{machine.name} sees {detached}"
            for part in partitions_of(machine):
                if part.failed is not None:
                    return f"{machine.name} {part.topic_partition}: {part.failed}"
                view = self._view(part)
                ends.setdefault(view.name, {})[machine.name] = (
                    int(view.log.log_end), view.committed)
        for name, marks in ends.items():
            if len(set(marks.values())) > 1 or any(end > mark for end, mark in marks.values()):
                return f"{name}: end and committed are {marks}"
        return ""

    def _settled(self) -> None:
        for consumer in self.consumers:
            self.load.history.missing(consumer.partition, [consumer.client.name])


def node_of(machine: Machine) -> Node:
    program = machine.program
    assert isinstance(program, RealNode)
    return program.node


def partitions_of(machine: Machine) -> Iterable[Partition]:
    """Those of the process that runs now, as soon as it has any."""
    if machine.program is None or not hasattr(node_of(machine), "broker"):
        return ()
    return node_of(machine).broker.partitions.all()


def names_of(chains: tuple[int, ...]) -> tuple[str, ...]:
    """Of the nodes of chains of so many."""
    return tuple(f"{chr(ord('a') + place)}-{number}"
                 for place, count in enumerate(chains) for number in range(count))


def plan_of(world: World) -> Plan:
    """Everything about a world that is decided before it begins."""
    dice = world.dice.fork("plan")
    chains = dice.choose([(1,), (2,), (2,), (3,), (3,), (3,), (4,), (2, 2)])
    is_durable = dice.flip(0.7)
    segment_size = dice.choose([2_000, 20_000, 1 << 30])
    index_interval = dice.choose([1, 300, 4096])
    settings = [
        f"log.flush.interval.messages={1 if is_durable else 1000}",
        f"chain.window.bytes={dice.choose([1024, 20_000, 1 << 20])}",
        f"min.insync.replicas={min(dice.choose([0, 1, 1, 2]), *chains)}",
    ]
    return Plan(
        chains=chains, partitions=1 + dice.below(2), fault_seconds=dice.between(3, 7),
        malice=Malice(
            down_max=dice.choose([1, 1, 2, 4]), haste=dice.choose([1.0, 2.0, 5.0]),
            power_losses=is_durable, pauses=dice.flip(0.7),
            cuts=dice.flip(0.7), storms=dice.flip(0.7), slow_disks=dice.flip(0.5),
            full_disks=dice.flip(0.25),
            outages=dice.flip(0.4), mishaps=not is_durable and min(chains) > 1 and dice.flip(0.7),
            lost_disks=sum(chains) >= VOTERS_MAX and dice.flip(0.4),
            voteless=names_of(chains)[VOTERS_MAX:] if len(chains) > 1 else (),
            failing_syncs=dice.flip(0.35),
            old_disks=sum(chains) >= VOTERS_MAX and dice.flip(0.4),
            failing_logs=dice.flip(0.4)),
        settings=tuple(settings), segment_size=segment_size, index_interval=index_interval)
