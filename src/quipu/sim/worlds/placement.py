"""A world of managed placement: controllers that take turns, brokers in racks, and operators.

Controllers are real as far as they place diskless partitions (placement_controller.py); brokers are
what the metadata says of them.  Brokers and whole racks fail, return, shut down, change racks and
are unregistered; topics come, grow and go; operators move replicas and elect leaders; settings
change.  Controllers are killed and deposed, each with a clock that is a little off, and clocks are
set while a controller leads.

After the faults all brokers return, and within a time limit each partition has one replica in each
rack; from then on nothing changes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from quipu.broker.quorum.contract import NotController
from quipu.controller import brokers, elections, reassignment
from quipu.controller.decision import Decision
from quipu.controller.elections import ElectionType
from quipu.controller.racks import rack_of
from quipu.controller.reassignment import Reassignment
from quipu.controller.records import ConfigChanged
from quipu.controller.resources import ResourceType
from quipu.controller.state import CLUSTER_DEFAULT, ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topics import create_partitions, create_topics, delete_topics
from quipu.model.errors import RequestError
from quipu.model.ids import ZERO_UUID, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from quipu.sim.trace import Trace
from quipu.sim.world import Machine, World
from quipu.sim.worlds.placement_checkers import SKEW_MS_MAX, PlacementChecker
from quipu.sim.worlds.placement_controller import SimController, SimQuorum

CONTROLLERS: Final = 3
TOPICS_MAX: Final = 3
PARTITIONS_MAX: Final = 6
CONVERGE_SECONDS_MAX: Final = 120.0
QUIET_SECONDS: Final = 1.0  # without a decision
STEADY_SECONDS: Final = 6.0
CLOCK_STEP_MS: Final = 3_600_000
BOOT_STEPS_MAX: Final = 100
REGISTER_TRIES_MAX: Final = 100
FIRST_CONTROLLER: Final = 900  # brokers have lower numbers
AUTO: Final = "diskless.managed.rf.auto.reconcile"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementWorldPlan:
    """The parameters of one seed's world."""

    racks: tuple[str | None, ...]  # None: brokers without a rack
    rack_size: int
    rate: int
    threshold_seconds: float
    fault_seconds: float
    pause_seconds: float  # between two events, at most
    term_seconds: float  # at most
    has_clock_steps: bool


class PlacementWorld:
    """Controllers, the metadata, and everything that happens to brokers and topics."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.world = world = World(seed, echo=echo)
        self.dice = world.dice.fork("events")
        self.plan = plan = plan_of(world)
        settings = BrokerSettings(
            diskless_storage_system_enable=True,
            diskless_managed_rf_max_moves_per_sec=plan.rate,
            diskless_managed_rf_rack_unavailable_threshold_ms=int(plan.threshold_seconds * 1000))
        self.checker = PlacementChecker(
            plan.threshold_seconds, plan.rate, lambda: world.loop.now)
        self.quorum = SimQuorum(world.dice.fork("quorum"), settings, self.checker)
        self.checker.state = lambda: self.quorum.truth.state
        self.leader: SimController | None = None
        self.led_since = 0.0
        self._goes_on = True
        self._events = {
            "start": self._start, "kill": self._kill, "kill rack": self._kill_rack,
            "start rack": self._start_rack, "stop": self._stop, "change rack": self._change_rack,
            "unregister": self._unregister, "create": self._create, "grow": self._grow,
            "delete": self._delete, "move": self._move, "elect": self._elect,
            "auto": self._set_auto}
        self._number = 0
        self._lives = 0
        self._last_commit = (0, 0.0)  # its number, and when it was first seen
        for number in range(CONTROLLERS):
            machine = world.machine(f"c-{number}", partial(
                SimController, quorum=self.quorum, node_id=NodeId(FIRST_CONTROLLER + number)))
            machine.clock.step_ms = int(world.dice.between(-SKEW_MS_MAX, SKEW_MS_MAX))
        world.checkers.append(self)

    @property
    def trace(self) -> Trace:
        return self.world.trace

    @property
    def step_count(self) -> int:
        return self.world.loop.step_count

    @property
    def now(self) -> float:
        return self.world.loop.now

    def look(self, machine: Machine | None) -> None:
        """A checker: deadlines, whatever happens."""
        del machine
        if self.leader is not None:
            self.checker.check_deadlines(self.led_since, self.leader.started_at)

    # -- the run

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
        world.run(self._terms(), "terms")
        world.run_until(lambda: self.leader is not None, 10.0, "led")
        world.run(self._begin(), "begin")
        world.run(self._happen(), "events")
        world.run_for(self.plan.fault_seconds)
        self._goes_on = False
        world.run_for(2 * self.plan.term_seconds + 1.0)
        world.run(self._heal(), "heal")
        world.run_until(self._is_steady, CONVERGE_SECONDS_MAX, "steady")
        self.checker.check_end()
        before = self.quorum.commit_count
        world.run_for(STEADY_SECONDS)
        assert self.quorum.commit_count == before, "something changed without a cause"

    def _is_steady(self) -> bool:
        reconciliation = self.leader.reconciliation if self.leader is not None else None
        up = all(not broker.fenced for broker in self._state.brokers.values())
        if not up or reconciliation is None or reconciliation.backlog:
            return False
        return self._commits_stopped()

    def _commits_stopped(self) -> bool:
        now, count = self.world.loop.now, self.quorum.commit_count
        if self._last_commit[0] != count:
            self._last_commit = (count, now)
        return now - self._last_commit[1] >= QUIET_SECONDS

    # -- terms of controllers

    async def _terms(self) -> None:
        """One controller after the other; the last one stays."""
        dice = self.world.dice.fork("terms")
        while True:
            name = dice.choose(sorted(self.world.machines))
            await self._lead(self.world.machines[name])
            await asyncio.sleep(dice.between(0.2, self.plan.term_seconds))
            if not self._goes_on:
                return
            machine = self.world.machines[name]
            if self.plan.has_clock_steps and dice.flip(0.5):
                machine.clock.step_ms += dice.choose((-CLOCK_STEP_MS, CLOCK_STEP_MS))
                machine.record("clock", machine.clock.step_ms)
                await asyncio.sleep(dice.between(0.2, self.plan.term_seconds))
            self._end_term(machine, is_killed=dice.flip(0.5))
            machine.clock.step_ms = int(dice.between(-SKEW_MS_MAX, SKEW_MS_MAX))
            await asyncio.sleep(dice.between(0, 0.5))

    async def _lead(self, machine: Machine) -> None:
        if machine.is_dead:
            machine.boot()
        for _ in range(BOOT_STEPS_MAX):
            if machine.is_up:
                break
            await asyncio.sleep(0.01)
        program = machine.program
        assert isinstance(program, SimController)
        self.quorum.leader = program.node_id
        machine.record("leads")
        self.led_since, self.leader = self.world.loop.now, program
        await self.world.run_on(machine, program.lead, "lead")

    def _end_term(self, machine: Machine, *, is_killed: bool) -> None:
        self.leader, self.quorum.leader = None, None
        self.checker.forget_requests()
        assert isinstance(machine.program, SimController)
        machine.program.end()
        machine.record("deposed")
        if is_killed:
            machine.kill()

    # -- events

    @property
    def _state(self) -> ClusterState:
        return self.quorum.truth.state

    async def _begin(self) -> None:
        node_id = 0
        for rack in self.plan.racks:
            for _ in range(self.plan.rack_size):
                node_id += 1
                await self._up(NodeId(node_id), rack)
        await self._create()

    async def _happen(self) -> None:
        names = sorted(self._events)
        while self._goes_on:
            await asyncio.sleep(self.dice.between(0, self.plan.pause_seconds))
            await self._events[self.dice.choose(names)]()

    async def _heal(self) -> None:
        """All brokers are up, and reconciliation is on."""
        await self._auto(value="true")
        for node_id in list(self._state.brokers):
            await self._up(node_id, self._state.brokers[node_id].rack)

    async def _ask(
        self, what: str, decide: Callable[[SimController], Decision[Any]], about: object = ""
    ) -> None:
        """Have the controller decide, if there is one; what it refuses is no failure."""
        leader = self.leader
        if leader is None:
            return
        self.world.record(what, about)
        self._number += 1
        number, machine = self._number, self._machine_of(leader)

        def decided(at: SimController) -> Decision[Any]:
            self.checker.decided(number)
            return decide(at)

        async def asked() -> None:
            self.checker.asked(number)
            try:
                await leader.request(what, decided)
            except (RequestError, NotController) as error:
                self.world.record("refused", error)

        self.world.run_on(machine, asked, what)
        await asyncio.sleep(self.dice.between(0, 0.05))

    def _machine_of(self, controller: SimController) -> Machine:
        return self.world.machines[f"c-{controller.node_id - FIRST_CONTROLLER}"]

    def _known(self, *, fenced: bool | None = None) -> list[NodeId]:
        return [node_id for node_id, broker in self._state.brokers.items()
                if fenced is None or broker.fenced == fenced]

    async def _up(self, node_id: NodeId, rack: str | None) -> None:
        """A broker's process starts, registers, and is unfenced."""
        self._lives += 1
        wanted = brokers.Registration(
            node_id=node_id, name=f"n-{node_id}", incarnation=UUID(int=self._lives),
            host="host", port=9092, rack=rack)
        for _ in range(REGISTER_TRIES_MAX):
            found = self._state.brokers.get(node_id)
            if found is not None and not found.fenced and rack_of(found) == (rack or "unknown"):
                return
            await self._ask("register", lambda at: brokers.register(
                at.metadata.state, wanted, quiet=True, now_ms=at.now_ms), node_id)
            await self._ask("unfence", lambda at: brokers.unfence(
                at.metadata.state, node_id, at.metadata.state.brokers[node_id].epoch)
                if node_id in at.metadata.state.brokers else Decision([], []), node_id)
            await asyncio.sleep(0.05)

    async def _start(self) -> None:
        down = self._known(fenced=True)
        if down:
            node_id = self.dice.choose(down)
            await self._up(node_id, self._state.brokers[node_id].rack)
        elif len(self._state.brokers) < len(self.plan.racks) * self.plan.rack_size:
            await self._up(NodeId(100 + self.dice.below(100)), self.dice.choose(self.plan.racks))

    async def _fence(self, nodes: list[NodeId]) -> None:
        await self._ask("kill", lambda at: brokers.fence(
            at.metadata.state, [each for each in nodes if each in at.metadata.state.brokers],
            now_ms=at.now_ms), nodes)

    async def _kill(self) -> None:
        if up := self._known(fenced=False):
            await self._fence([self.dice.choose(up)])

    async def _kill_rack(self) -> None:
        rack = self.dice.choose(self.plan.racks)
        await self._fence([each.node_id for each in self._state.brokers.values()
                           if each.rack == rack and not each.fenced])

    async def _start_rack(self) -> None:
        rack = self.dice.choose(self.plan.racks)
        for broker in list(self._state.brokers.values()):
            if broker.rack == rack and broker.fenced:
                await self._up(broker.node_id, rack)

    async def _stop(self) -> None:
        if up := self._known(fenced=False):
            node_id = self.dice.choose(up)
            epoch = self._state.brokers[node_id].epoch
            await self._ask("stop", lambda at: brokers.stop(
                at.metadata.state, node_id, epoch, now_ms=at.now_ms), node_id)

    async def _change_rack(self) -> None:
        if (down := self._known(fenced=True)) and self.dice.flip(0.3):
            await self._up(self.dice.choose(down), self.dice.choose(self.plan.racks))

    async def _unregister(self) -> None:
        if len(down := self._known(fenced=True)) > 1 and self.dice.flip(0.3):
            node_id = self.dice.choose(down)
            await self._ask("unregister", lambda at: brokers.unregister(
                at.metadata.state, node_id), node_id)

    async def _create(self) -> None:
        name, count = f"t{self.dice.below(TOPICS_MAX)}", 1 + self.dice.below(PARTITIONS_MAX)
        wanted = NewTopic(name, count, -1, (), (("diskless.enable", "true"),))
        topic_id = self.dice.uuid()
        await self._ask("create", lambda at: create_topics(
            at.metadata.state, [wanted], self.quorum.settings, lambda: topic_id), name)

    async def _grow(self) -> None:
        if self._state.topics:
            topic = self._state.topics[self.dice.choose(sorted(self._state.topics))]
            total = min(len(topic.partitions) + 1, 2 * PARTITIONS_MAX)
            await self._ask("grow", lambda at: create_partitions(
                at.metadata.state, [NewPartitions(topic.name, total)], self.quorum.settings),
                topic.name)

    async def _delete(self) -> None:
        if self._state.topics and self.dice.flip(0.3):
            name = self.dice.choose(sorted(self._state.topics))
            await self._ask("delete", lambda at: delete_topics(
                at.metadata.state, [(name, ZERO_UUID)], self.quorum.settings), name)

    async def _move(self) -> None:
        if not self._state.topics:
            return
        topic = self._state.topics[self.dice.choose(sorted(self._state.topics))]
        nodes = self.dice.shuffled(sorted(self._state.brokers))
        wanted = Reassignment(topic.name, self.dice.below(len(topic.partitions)),
                              [*nodes[:1 + self.dice.below(len(nodes))]])
        await self._ask("move", lambda at: reassignment.alter(at.metadata.state, [wanted]), wanted)

    async def _elect(self) -> None:
        if self._state.topics:
            topic = self._state.topics[self.dice.choose(sorted(self._state.topics))]
            named = TopicPartition(topic.name, self.dice.below(len(topic.partitions)))
            await self._ask("elect", lambda at: elections.elect(
                at.metadata.state, ElectionType.PREFERRED, [named]), named)

    async def _set_auto(self) -> None:
        await self._auto(value="true" if self.dice.flip(0.7) else "false")

    async def _auto(self, *, value: str) -> None:
        record = ConfigChanged(resource_type=ResourceType.BROKER, resource_name=CLUSTER_DEFAULT,
                               name=AUTO, value=value)
        await self._ask("auto", lambda _: Decision([record], []), value)


def plan_of(world: World) -> PlacementWorldPlan:
    """The world of a seed."""
    dice = world.dice.fork("plan")
    return PlacementWorldPlan(
        racks=("a", "b", "c", None)[:2 + dice.below(3)],
        rack_size=1 + dice.below(3),
        rate=dice.choose((3, 10, 100)),
        threshold_seconds=dice.choose((2.0, 4.0)),
        fault_seconds=dice.between(10.0, 25.0),
        pause_seconds=dice.choose((0.2, 0.6, 2.0)),
        term_seconds=dice.choose((1.5, 3.0, 8.0)),
        has_clock_steps=dice.flip(0.5))
