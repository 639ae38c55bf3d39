"""A world of real nodes: several `broker.node.Node`s, Kafka clients, and faults.

What the seed decides: how many nodes and partitions there are, how they flush, how large segments
are, who produces and how, and every fault.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from quipu.broker.node import Node
from quipu.model.settings import BrokerSettings
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.sim.checkers import LogsAgree, PartitionView
from quipu.sim.client import Client, Place
from quipu.sim.history import TopicPartition
from quipu.sim.nemesis import Malice, Nemesis
from quipu.sim.workload import (
    ALL,
    Consumer,
    Load,
    create_topic,
    create_topics,
    produce_idempotently,
    produce_plainly,
)
from quipu.sim.world import Machine, World

CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9192
DATA: Final = "data"
CONVERGE_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one seed's world looks like."""

    nodes: int
    partitions: int
    fault_seconds: float
    malice: Malice
    settings: tuple[str, ...] = ()


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
        if self.plan.malice.full_disks:
            self.world.allowed_errors = ("no space left",)
        self.load = Load()
        self.consumers: list[Consumer] = []
        for index in range(self.plan.nodes):
            self.world.machine(
                f"n{index + 1}", partial(RealNode, settings=self._settings(index)))
        self.places = [Place(name, CLIENT_PORT) for name in self.world.machines]
        self.nemesis = Nemesis(self.world, self.plan.malice)
        self.logs = LogsAgree(views, reigns=False)
        self.world.checkers.append(self.logs)

    def _settings(self, index: int) -> BrokerSettings:
        return broker_settings(from_assignments([
            f"node.name=a-{index}", f"listeners=n{index + 1}:{CLIENT_PORT}", f"log.dirs={DATA}",
            "auto.create.topics.enable=false", *self.plan.settings]))

    def client(self, name: str) -> Client:
        return Client(self.world, name, self.places)

    def run(self) -> None:
        """Both phases; raises `Violation`."""
        world, plan = self.world, self.plan
        world.tell("plan", plan)
        for machine in world.machines.values():
            machine.boot()
        world.run(self._load(), "load")
        world.run_until(lambda: bool(self.consumers), 30.0, "ready")
        world.run(self.nemesis.run(), "nemesis")
        world.run_for(plan.fault_seconds)
        self.nemesis.heal()
        world.run_for(2.0)
        self.load.goes_on = False
        world.run_until(self._converged, CONVERGE_SECONDS_MAX, "converged")
        self._settled()

    async def _load(self) -> None:
        """Make the topics, then let everyone go."""
        admin = self.client("admin")
        await create_topic(admin, self.load, "t", partitions=self.plan.partitions)
        world, dice = self.world, self.world.dice.fork("load")
        for index in range(self.plan.partitions):
            partition = ("t", index)
            for number in range(1 + dice.below(2)):
                client = self.client(f"p{index}{number}")
                world.run(self._producer(client, partition, dice.below(4)), client.name)
            self._consume(f"c{index}", partition)
        world.run(create_topics(self.client("admin2"), self.load), "create topics")
        await asyncio.sleep(0)

    async def _producer(self, client: Client, partition: TopicPartition, kind: int) -> None:
        if kind < 2:
            await produce_idempotently(client, self.load, partition)
        else:
            await produce_plainly(client, self.load, partition, acks=ALL if kind == 2 else 1)

    def _consume(self, name: str, partition: TopicPartition) -> None:
        consumer = Consumer(self.client(name), self.load, partition)
        self.consumers.append(consumer)
        self.world.run(consumer.run(), name)

    def _converged(self) -> bool:
        """Every node is up, and every reader has read to the end that everyone knows."""
        history = self.load.history
        return all(machine.is_up for machine in self.world.machines.values()) and all(
            consumer.position >= history.end(consumer.partition)
            and consumer.position >= consumer.high_watermark for consumer in self.consumers)

    def _settled(self) -> None:
        for consumer in self.consumers:
            self.load.history.missing(consumer.partition, [consumer.client.name])


def views(machine: Machine) -> Iterable[PartitionView]:
    """The partitions of a node that serves."""
    program = machine.program
    assert isinstance(program, RealNode)
    for partition in program.node.broker.partitions.all():
        if partition.failed is None:
            yield PartitionView(
                str(partition.topic_partition), partition.log, partition.log.flushed_end)


def plan_of(world: World) -> Plan:
    """Everything about a world that is decided before it begins."""
    dice = world.dice.fork("plan")
    settings = [
        "log.flush.interval.messages=1", "default.replication.factor=1", "min.insync.replicas=1",
        f"log.segment.bytes={dice.choose([2_000, 20_000, 1 << 30])}",
        f"log.index.interval.bytes={dice.choose([1, 300, 4096])}",
    ]
    return Plan(
        nodes=1, partitions=1 + dice.below(3), fault_seconds=dice.between(4, 10),
        malice=Malice(down_max=1, pauses=dice.flip(0.7), storms=dice.flip(0.7)),
        settings=tuple(settings))
