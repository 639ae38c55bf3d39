"""A world of real nodes: several `broker.node.Node`s, Kafka clients, and faults.

The seed determines the number of nodes, chains and partitions, how logs are flushed, the sizes of
segments and windows, the producers, and every fault.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from quipu.broker.node import Node
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.model.chains import MemberState
from quipu.model.errors import Code
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.disks.sim_disk import BROKEN
from quipu.sim.nemesis import Malice, Nemesis
from quipu.sim.trace import Trace
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import BrokerAddress, Client
from quipu.sim.workloads.end_watch import EndWatch
from quipu.sim.workloads.groups import Bookmark
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.keyed import KeyLedger, TableReader, produce_keyed
from quipu.sim.workloads.traffic import (
    ALL,
    Consumer,
    Load,
    create_topic,
    create_topics,
    produce_idempotently,
    produce_plainly,
)
from quipu.sim.workloads.windowed_producer import WindowedProducer
from quipu.sim.world import Machine, Violation, World
from quipu.sim.worlds.node_checkers import PartitionView, StoredLogs
from quipu.storage.phases import LogPhase
from quipu.wire.messages.k10001_create_chain import CreateChainRequest

CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9192
DATA: Final = "data"
SHAPES: Final = ((1,), (2,), (2,), (3,), (3,), (3,), (4,), (2, 2))  # nodes of each chain
TABLE: Final = "table"  # the compacted topic
VOTERS_MAX: Final = 3
READY_SECONDS_MAX: Final = 60.0
CONVERGE_SECONDS_MAX: Final = 60.0
QUICK: Final = (  # short timeouts, so that a run needs fewer heartbeats
    "broker.heartbeat.interval.ms=150", "broker.session.timeout.ms=900", "broker.lease.ms=600",
    "controller.quorum.election.timeout.ms=400", "controller.quorum.heartbeat.interval.ms=100",
    "chain.heartbeat.interval.ms=100", "chain.cold.start.wait.ms=1500",
    "peer.request.timeout.ms=1000", "controlled.shutdown.timeout.ms=2000",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorldPlan:
    """The parameters of one seed's world."""

    chains: tuple[int, ...]  # the number of nodes of each
    partitions: int
    fault_seconds: float
    malice: Malice
    settings: tuple[str, ...] = ()
    segment_size: int = 1 << 30
    index_interval: int = 4096
    topic: tuple[tuple[str, str], ...] = ()  # settings of the topic, with _ for .
    is_compacting: bool = False  # whether there is a compacted topic, too

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nodes: a-0, a-1, ..., b-0, ..."""
        return names_of(self.chains)


class RealNode:
    """A `Program`: one node, with the simulated disk, network and clock of its machine."""

    def __init__(self, machine: Machine, settings: BrokerSettings) -> None:
        self.node = Node(
            settings, clock=machine.clock, rng=machine.dice.fork(f"boot/{machine.boots}"),
            disk=machine.disk, net=machine.door, with_http=False,
            open_store=lambda _url, _now_ms: machine.objects)

    async def start(self) -> None:
        await self.node.start()

    async def stop(self) -> None:
        await self.node.stop()


class NodeWorld:
    """Nodes, their clients and their nemesis."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.world = World(seed, echo=echo)
        self.plan = self._make_plan()
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
        self.table_readers: list[TableReader] = []
        for index, name in enumerate(self.plan.names):
            self.world.machine(name, partial(RealNode, settings=self._settings(index, name)))
        self.places = [BrokerAddress(name, CLIENT_PORT) for name in self.plan.names]
        self.nemesis = Nemesis(self.world, self.plan.malice, self._leader, self._is_whole)
        self._names = self.plan.names
        self._marks: dict[str, dict[ReplicatedPartition, object]] = {
            name: {} for name in self._names}
        self.logs = StoredLogs(self._changed)
        self.world.checkers.append(self.logs)
        self.load.history.on_acked = self.logs.acknowledged

    def _make_plan(self) -> NodeWorldPlan:
        return plan_of(self.world)

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
        return dataclasses.replace(  # smaller than settings allow, so that segments roll often
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
        """Run both phases; raises `Violation`."""
        try:
            self._run()
        finally:
            self.world.end()

    def _run(self) -> None:
        world, plan = self.world, self.plan
        world.record("plan", plan)
        for machine in world.machines.values():
            machine.boot()
        world.run(self._load(), "load")
        world.run_until(lambda: bool(self.consumers), READY_SECONDS_MAX, "ready")
        world.run(self.nemesis.run(), "nemesis")
        world.run_for(plan.fault_seconds)
        self._heal()
        world.run_for(2.0)
        self.load.goes_on = False
        try:
            world.run_until(lambda: not self._unsettled(), CONVERGE_SECONDS_MAX, "converged")
        except Violation as error:
            if not (why := self._unsettled()):
                raise
            raise Violation(f"{error}: {why}") from error
        self._settled()

    def _heal(self) -> None:
        self.nemesis.heal()

    # -- clients

    async def _load(self) -> None:
        """Create chains and topics, then start all clients."""
        admin = self.client("admin")
        if len(self.plan.names) > 1:
            for place in range(len(self.plan.chains)):
                await self._create_chain(admin, chr(ord("a") + place))
        await create_topic(admin, self.load, "t", partitions=self.plan.partitions,
                           **dict(self.plan.topic))
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
        if self.plan.is_compacting:
            await self._load_table(admin)

    async def _load_table(self, admin: Client) -> None:
        """Create a compacted topic, then start its clients."""
        await create_topic(admin, self.load, TABLE, partitions=1, cleanup_policy="compact",
                           min_cleanable_dirty_ratio="0.1")
        ledger, partition = KeyLedger(), (TABLE, 0)
        for number in range(2):
            client = self.client(f"k{number}")
            self.world.run(produce_keyed(client, self.load, ledger, partition), client.name)
        reader = TableReader(self.client("r0"), self.load, partition, ledger=ledger)
        self.table_readers.append(reader)
        self.world.run(reader.run(), "r0")

    async def _create_chain(self, admin: Client, chain: str) -> None:
        names = [name for name in self.plan.names if name.startswith(f"{chain}-")]
        while True:
            try:
                answer = await admin.ask(admin.strangers(), CreateChainRequest(
                    name=chain, node_names=names, timeout=3000), 0)
            except SimDisconnected:
                code = int(Code.NETWORK_EXCEPTION)
            else:
                code = answer.error_code
                message = answer.error_message or ""
                self.world.record("chain", f"{chain} {Code(code).name} {message}")
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

    # -- the state of nodes

    def _changed(self, machine: Machine) -> Iterable[PartitionView]:
        """Yield the partitions that have changed since the last call."""
        marks = self._marks[machine.name]
        for part in partitions_of(machine):
            log = part.log
            mark = (log.log_end, log.flusher.flushed_log, part.commit_waiters.committed_log,
                    part.leader_epoch, part.is_serving, part.is_leader, part.is_sole_replica,
                    part.is_epoch_start_due, part.is_readable, log.local_start_offset)
            if marks.get(part) != mark:
                if part not in marks:  # it may have been here before, and left
                    self.logs.forget(machine, str(part.topic_partition))
                marks[part] = mark
                if part.failure is None and log.phase is LogPhase.OPEN and (
                        part.topic_partition.topic != TABLE):  # compaction changes its batches
                    yield self._view(part)

    def _view(self, part: ReplicatedPartition) -> PartitionView:
        log, replicas = part.log, part.replica_set
        kept = log.flusher.flushed_log if log.is_durable else log.log_end
        serving = () if replicas is None else replicas.serving
        return PartitionView(
            name=str(part.topic_partition), log=log, kept_end=kept,
            committed=kept if part.is_sole_replica else part.commit_waiters.committed_log,
            high_watermark=part.high_watermark, epoch=part.leader_epoch,
            is_serving=part.is_serving, is_leading=part.is_leader and not part.is_epoch_start_due,
            is_giving=part.is_serving and part.is_readable,
            serving=tuple(self._names[node_id - 1] for node_id in serving))

    def _leader(self) -> Machine | None:
        """A machine that leads a partition now; None if there is none."""
        for machine in self.world.machines.values():
            if machine.is_up and machine.is_running and any(
                    part.is_leader for part in partitions_of(machine)):
                return machine
        return None

    def _is_whole(self) -> bool:
        """Whether every node serves with its current process, by every node's metadata."""
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
                node_of(machine).broker.cluster.state.detached_partitions() for machine in machines)

    def _unsettled(self) -> str:
        """Why the world has not converged yet, for people; empty if it has."""
        machines = self.world.machines.values()
        for machine in machines:
            if not machine.is_up:
                return f"{machine.name} has not started"
        return self._clients_unsettled() or self._logs_unsettled()

    def _clients_unsettled(self) -> str:
        for bookmark in self.bookmarks:
            if not bookmark.is_done:
                return "a group has no coordinator"
        for consumer in self.consumers:
            end = max(self.load.history.end(consumer.partition), consumer.high_watermark)
            if consumer.position < end:
                return f"{consumer.client.name} has read to {consumer.position} of {end}"
        for reader in self.table_readers:
            if not reader.is_done:
                return f"{reader.client.name} has read to {reader.position}"
        return ""

    def _logs_unsettled(self) -> str:
        machines = self.world.machines.values()
        ends: dict[str, dict[str, tuple[int, int]]] = {}
        for machine in machines:
            for chain in node_of(machine).broker.cluster.state.chains.values():
                if any(member.state is not MemberState.SERVING for member in chain.members):
                    return f"{machine.name} sees {chain}"
            if detached := node_of(machine).broker.cluster.state.detached_partitions():
                return f"{machine.name} sees {detached}"
            for part in partitions_of(machine):
                if part.failure is not None:
                    return f"{machine.name} {part.topic_partition}: {part.failure}"
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


def partitions_of(machine: Machine) -> Iterable[ReplicatedPartition]:
    """The partitions of the current process, once it has started."""
    if machine.program is None or not hasattr(node_of(machine), "broker"):
        return ()
    return node_of(machine).broker.partitions.replicated()


def names_of(chains: tuple[int, ...]) -> tuple[str, ...]:
    """The names of the nodes of chains with these numbers of nodes."""
    return tuple(f"{chr(ord('a') + place)}-{number}"
                 for place, count in enumerate(chains) for number in range(count))


def plan_of(world: World, shapes: Sequence[tuple[int, ...]] = SHAPES) -> NodeWorldPlan:
    """Everything about a world that is decided before it begins; its chains are of `shapes`."""
    dice = world.dice.fork("plan")
    chains = dice.choose(shapes)
    is_durable = dice.flip(0.7)
    segment_size = dice.choose([2_000, 20_000, 1 << 30])
    index_interval = dice.choose([1, 300, 4096])
    settings = [
        f"log.flush.interval.messages={1 if is_durable else 1000}",
        f"chain.window.bytes={dice.choose([1024, 20_000, 1 << 20])}",
    ]
    if (least := dice.choose([0, 1, None, 2])) is not None:  # None: all replicas but one
        settings.append(f"min.insync.replicas={least}")
    return NodeWorldPlan(
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
