"""The controller's loop over diskless partitions: pace, backlog, settings, terms and clocks."""

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.decision_queue import DecisionQueue
from quipu.broker.cluster.reconciliation import (
    DECISION_MOVES_MAX,
    TICK_SECONDS,
    Reconciliation,
)
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.broker.cluster.term_clock import TermClock
from quipu.broker.quorum.contract import NotController
from quipu.controller import brokers
from quipu.controller.brokers import Registration
from quipu.controller.decision import Decision
from quipu.controller.racks import RackState, racks_of
from quipu.controller.records import (
    BrokerFencingChanged,
    ClusterCreated,
    ConfigChanged,
    ConfigRecord,
    PartitionRecord,
    PartitionRun,
    PartitionsMoved,
    PlacementKind,
    Record,
    TopicCreated,
    TopicDeleted,
    decode_record,
)
from quipu.controller.resources import ResourceType
from quipu.controller.state import CLUSTER_DEFAULT
from quipu.model.ids import NodeId, RaftIndex
from quipu.model.settings import BrokerSettings
from quipu.runtime.clock import ManualClock
from tests.broker.cluster.rig import Rig
from tests.looped import LoopClock, timeless

DECIDE_SECONDS = 0.005
TOPIC = UUID(int=7)
THRESHOLD_MS = 3000


class OneVoter:
    """A quorum of one: a proposal takes a while, and is applied."""

    def __init__(self, machine: MetadataStateMachine) -> None:
        self.is_leader = True
        self.leader = NodeId(1)
        self.decisions: list[tuple[float, list[Record]]] = []
        self._machine = machine

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        await asyncio.sleep(DECIDE_SECONDS)
        self.decisions.append(
            (asyncio.get_running_loop().time(), [decode_record(each) for each in commands]))
        self._machine.apply(RaftIndex(len(self.decisions)), commands)
        return RaftIndex(len(self.decisions))

    async def barrier(self) -> None:
        if not self.is_leader:
            raise NotController("deposed")


class Controlled:
    """A controller with nothing but reconciliation; brokers 1, 2, 3 in the racks a, b and c."""

    def __init__(self, rate: int = 1000) -> None:
        self.machine = MetadataStateMachine(
            BrokerSettings(diskless_storage_system_enable=True,
                           diskless_managed_rf_max_moves_per_sec=rate,
                           diskless_managed_rf_rack_unavailable_threshold_ms=THRESHOLD_MS),
            on_leadership=lambda _: None)
        self.quorum = OneVoter(self.machine)
        self.decisions = DecisionQueue(cast("Consensus", self.quorum), self.machine.listeners)
        self.start()
        self.machine.state.apply(ClusterCreated(cluster_id="c"))
        for node_id, rack in enumerate("abc", 1):
            self.register(node_id, rack)

    def start(self) -> None:
        """Start the node, for the first time or again."""
        self.clock = TermClock(LoopClock())
        self.reconciliation = Reconciliation(self.machine, self.decisions, self.clock)
        self.machine.listeners.add(self.reconciliation)

    def register(self, node_id: int, rack: str) -> None:
        state = self.machine.state
        registered = brokers.register(state, Registration(
            node_id=NodeId(node_id), name=f"n-{node_id}", incarnation=UUID(int=node_id),
            host="h", port=1, rack=rack), quiet=True)
        state.apply(registered.records[0])
        state.apply(BrokerFencingChanged(node_id=node_id))

    def old_topic(self, count: int, topic_id: UUID = TOPIC) -> TopicCreated:
        """A topic as the version before made it: one replica each."""
        return TopicCreated(
            name=f"t{topic_id.int}", topic_id=topic_id,
            configs=[ConfigRecord(name="diskless.enable", value="true")],
            partitions=[PartitionRecord(replicas=[1], isr=[1], leader=1)] * count,
            runs=[PartitionRun(count=count, kind=PlacementKind.DISKLESS,
                               version=self.machine.state.next_version)])

    async def request(self, *records: Record) -> None:
        decision: Decision[None] = Decision([*records], [])
        await self.decisions.run(lambda: decision)

    async def fence(self, *node_ids: int) -> None:
        for node_id in node_ids:
            await self.request(BrokerFencingChanged(
                node_id=node_id, fenced=True, fenced_at_ms=self.clock.now_ms()))

    async def set_auto(self, value: str) -> None:
        await self.request(ConfigChanged(
            resource_type=ResourceType.BROKER, resource_name=CLUSTER_DEFAULT,
            name="diskless.managed.rf.auto.reconcile", value=value))

    async def until(self, done: Callable[[], bool]) -> None:
        while not done():
            await asyncio.sleep(TICK_SECONDS)

    @property
    def factors(self) -> set[int]:
        """How many replicas partitions have."""
        return {len(partition.replicas) for topic in self.machine.state.diskless_topics()
                for partition in topic.partitions}

    def moves(self) -> list[tuple[float, int]]:
        """When replicas were added, and how many."""
        found, had = [], dict[tuple[UUID, int], int]()
        for when, records in self.quorum.decisions:
            number = 0
            for record in records:
                if isinstance(record, PartitionsMoved):
                    for index in record.partitions:
                        key = record.topic_id, index
                        number += abs(len(record.replicas) - had.get(key, 1))
                        had[key] = len(record.replicas)
            if number:
                found.append((when, number))
        return found


@timeless
async def test_topics_of_an_older_version_are_reconciled_at_once() -> None:
    """D9: as soon as a controller of this version begins; leaders stay."""
    it = Controlled()
    it.machine.state.apply(it.old_topic(40))
    it.reconciliation.begin()
    assert it.reconciliation.is_active
    await it.until(lambda: it.factors == {3})
    await asyncio.sleep(1.0)
    assert (it.reconciliation.backlog, it.reconciliation.moves) == (0, 80)
    assert {each.leader for each in it.machine.state.topics_by_id[TOPIC].partitions} == {1}
    it.reconciliation.end()
    assert not it.reconciliation.is_active


@timeless
async def test_moves_are_paced_and_the_backlog_is_known_before() -> None:
    """D16, D26: broker.cluster.R1; no more than the setting in any second, and one tick's share."""
    it = Controlled(rate=20)
    it.machine.state.apply(it.old_topic(60))
    it.machine.state.apply(it.old_topic(60, UUID(int=8)))
    it.reconciliation.begin()
    await asyncio.sleep(3 * TICK_SECONDS)
    assert it.reconciliation.backlog == 120
    await it.until(lambda: it.factors == {3})
    moves = it.moves()
    assert sum(number for _, number in moves) == 240
    for when, _ in moves:
        within = sum(number for other, number in moves if when - 1 < other <= when)
        assert within <= 20 * (1 + TICK_SECONDS) + 1
    assert 240 / 20 - 1 <= moves[-1][0] - moves[0][0] <= 240 / 20 + 2  # and it is not slower
    it.reconciliation.end()


@timeless
async def test_a_slow_rate_is_kept_too() -> None:
    """D16: a partition that needs two replicas gets one after the other."""
    it = Controlled(rate=1)
    it.machine.state.apply(it.old_topic(2))
    it.reconciliation.begin()
    await it.until(lambda: it.factors == {3})
    times = [when for when, number in it.moves() for _ in range(number)]
    assert all(later - earlier > 0.95 for earlier, later in itertools.pairwise(times))
    it.reconciliation.end()


@timeless
async def test_a_request_waits_for_one_decision_at_most() -> None:
    """D16: broker.cluster.R1; whatever the backlog; and no decision moves more than its share."""
    it = Controlled(rate=1_000_000)
    it.machine.state.apply(it.old_topic(3000))
    it.reconciliation.begin()
    for number in range(30):
        before = len(it.quorum.decisions)
        await it.request(ConfigChanged(
            resource_type=ResourceType.TOPIC, resource_name=f"t{TOPIC.int}", name="retention.ms",
            value=str(number)))
        assert len(it.quorum.decisions) - before <= 2  # one of reconciliation, and its own
    await it.until(lambda: it.factors == {3})
    assert max(number for _, number in it.moves()) <= DECISION_MOVES_MAX
    it.reconciliation.end()


@timeless
async def test_drift_is_only_counted_while_the_setting_is_false() -> None:
    """D17, D18: and repaired as soon as it is true again, without a restart."""
    it = Controlled()
    await it.set_auto("false")
    it.machine.state.apply(it.old_topic(10))
    it.reconciliation.begin()
    await asyncio.sleep(2.0)
    assert (it.reconciliation.backlog, it.reconciliation.moves, it.factors) == (10, 0, {1})
    await it.set_auto("true")
    await it.until(lambda: it.factors == {3})
    await asyncio.sleep(1.0)
    assert it.reconciliation.backlog == 0
    it.reconciliation.end()


@timeless
async def test_an_operators_move_is_noticed() -> None:
    """D18: broker.cluster.R2; accepted at once; added first, removed by a later decision."""
    it = Controlled()
    it.register(4, "a")
    it.machine.state.apply(it.old_topic(1))
    it.reconciliation.begin()
    await it.until(lambda: it.factors == {3})
    await it.request(PartitionsMoved(
        topic_id=TOPIC, partitions=[0], replicas=[4, 1], version=it.machine.state.next_version,
        kind=PlacementKind.DISKLESS))
    first = len(it.quorum.decisions)
    await it.until(lambda: it.factors == {3})
    after = [records[0] for _, records in it.quorum.decisions[first:]]
    assert [set(cast("PartitionsMoved", each).replicas) for each in after] == [
        {4, 1, 2, 3}, {1, 2, 3}]
    await asyncio.sleep(1.0)
    assert len(it.quorum.decisions) == first + 2  # a fixed point
    it.reconciliation.end()


@timeless
async def test_a_deleted_topic_leaves_the_backlog() -> None:
    """D26: and a new one enters it."""
    it = Controlled()
    await it.set_auto("false")
    it.reconciliation.begin()
    await it.request(it.old_topic(5))
    await it.request(it.old_topic(3, UUID(int=8)))
    await asyncio.sleep(1.0)
    assert it.reconciliation.backlog == 8
    await it.request(TopicDeleted(topic_id=TOPIC))
    await asyncio.sleep(1.0)
    assert it.reconciliation.backlog == 3
    it.reconciliation.end()
    assert it.reconciliation.backlog == 0


@timeless
async def test_a_rack_is_given_up_after_the_threshold(caplog: pytest.LogCaptureFixture) -> None:
    """D12, D13: its replicas go, once; when it is back they are there again."""
    it = Controlled()
    it.machine.state.apply(it.old_topic(4))
    it.reconciliation.begin()
    await it.until(lambda: it.factors == {3})
    state = it.machine.state
    with caplog.at_level(logging.WARNING):
        await it.request(*brokers.fence(state, [NodeId(3)], now_ms=it.clock.now_ms()).records)
        await asyncio.sleep(THRESHOLD_MS / 1000 - 0.3)
        assert it.factors == {3}
        await asyncio.sleep(1.0)
        assert it.factors == {2}
    assert racks_of(state.brokers.values())["c"].state is RackState.UNAVAILABLE
    assert sum("rack c is unavailable" in line for line in caplog.messages) == 1
    await it.request(BrokerFencingChanged(node_id=3))
    await it.until(lambda: it.factors == {3})
    it.reconciliation.end()


@timeless
async def test_nothing_is_decided_where_nothing_is_to_do() -> None:
    """D19: a steady cluster writes no metadata."""
    it = Controlled()
    it.reconciliation.begin()
    await asyncio.sleep(30.0)
    assert it.quorum.decisions == []
    it.reconciliation.end()


class SettableClock(ManualClock):
    """A clock whose wall time can be set."""

    def set(self, by_ms: int) -> None:
        self._now_ms += by_ms


def test_time_within_a_term_cannot_be_set() -> None:
    """D12: broker.cluster.R3; neither forward nor back; the next term takes the new time."""
    clock = SettableClock(1_000_000)
    term = TermClock(clock)
    clock.advance_ms(500)
    clock.set(3_600_000)
    assert term.now_ms() == 1_000_500
    clock.set(-2 * 3_600_000)
    clock.advance_ms(500)
    assert term.now_ms() == 1_001_000
    term.begin()
    assert term.now_ms() == clock.now_ms()


class ShortThreshold(Rig):
    """Nodes that give racks up after a while."""

    def settings(self, name: str, node_id: NodeId) -> BrokerSettings:
        return dataclasses.replace(
            super().settings(name, node_id),
            diskless_managed_rf_rack_unavailable_threshold_ms=THRESHOLD_MS)


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_controllers_clock_may_be_set_while_it_leads(step_ms: int) -> None:
    """D12: broker.cluster.R3; whole drivers; fencing and deadlines go by the same clock."""
    rig = ShortThreshold()
    rig.boot()
    controller = rig.cluster(rig.controller)
    other = next(node_id for node_id in rig.machines if node_id != rig.controller)
    rig.machines[NodeId(rig.controller)].clock.step_ms += step_ms
    rig.kill(other)

    def broker() -> Any:
        return controller.state.brokers[other]

    rig.until(lambda: broker().fenced, "fenced")
    began = rig.world.loop.now
    rig.until(lambda: broker().given_up, "given up", THRESHOLD_MS / 1000 + 1)
    assert rig.world.loop.now - began > THRESHOLD_MS / 1000 - 0.2
    rig.boot(other)
    rig.until(lambda: not broker().fenced, "up")
    assert not broker().given_up


def test_a_new_controller_keeps_the_deadline_of_the_one_before() -> None:
    """D12: broker.cluster.R3; whole drivers; the controller ends in the middle of the threshold."""
    rig = ShortThreshold(names=("a-0", "a-1", "a-2", "a-3", "a-4"), with_raft=True)
    rig.boot()
    first = rig.controller
    other = next(node_id for node_id in rig.machines if node_id != first)
    rig.kill(other)
    rig.until(lambda: rig.cluster(first).state.brokers[other].fenced, "fenced")
    began = rig.world.loop.now
    rig.run_for(THRESHOLD_MS / 2000)
    rig.kill(first)
    left = next(node_id for node_id in rig.machines if node_id not in (first, other))
    state = rig.cluster(left).state
    rig.until(lambda: state.brokers[other].given_up, "given up", THRESHOLD_MS / 1000)
    waited = rig.world.loop.now - began
    assert THRESHOLD_MS / 1000 - 0.2 < waited < THRESHOLD_MS / 1000 + 1.2


@timeless
async def test_a_rack_that_comes_back_broker_by_broker_is_used_as_a_whole() -> None:
    """D15, D19, broker.cluster.R4: its first broker does not get all replicas."""
    it = Controlled()
    it.register(6, "c")
    it.machine.state.apply(it.old_topic(40))
    it.reconciliation.begin()
    await it.until(lambda: it.factors == {3})
    await it.fence(3, 6)
    await it.until(lambda: it.factors == {2})
    await it.request(BrokerFencingChanged(node_id=3))
    await asyncio.sleep(THRESHOLD_MS / 2000)
    assert it.factors == {2}
    await it.request(BrokerFencingChanged(node_id=6))
    await it.until(lambda: it.factors == {3})
    load = it.machine.state.diskless_load.replicas
    assert (load[NodeId(3)], load[NodeId(6)]) == (20, 20)


@timeless
async def test_a_rack_is_used_without_brokers_that_stay_away() -> None:
    """D12, broker.cluster.R4: after a moment, which a new rack waits for as well."""
    it = Controlled()
    it.register(6, "c")
    it.machine.state.apply(it.old_topic(4))
    it.reconciliation.begin()
    await it.until(lambda: it.factors == {3})
    await it.fence(3, 6)
    await it.until(lambda: it.factors == {2})
    await it.request(BrokerFencingChanged(node_id=3))
    await it.until(lambda: it.factors == {3})
    assert it.machine.state.diskless_load.replicas[NodeId(3)] == 4
    it.register(4, "d")
    await asyncio.sleep(THRESHOLD_MS / 2000)
    assert it.factors == {3}
    it.register(5, "d")
    await it.until(lambda: it.factors == {4})
    load = it.machine.state.diskless_load.replicas
    assert (load[NodeId(4)], load[NodeId(5)]) == (2, 2)


@pytest.mark.parametrize("is_cold", [True, False])
@timeless
async def test_brokers_have_a_moment_after_a_time_without_a_controller(*, is_cold: bool) -> None:
    """D12, broker.cluster.R5: a cluster that was off for long finds its placement as it was.

    Also if another node was the controller for an instant before this one.
    """
    it = Controlled()
    it.machine.state.apply(it.old_topic(4))
    it.reconciliation.begin()
    await it.until(lambda: it.factors == {3})
    it.reconciliation.end()
    await it.fence(2, 3)
    await asyncio.sleep(10 * THRESHOLD_MS / 1000)
    it.start()
    it.reconciliation.begin(is_cold=is_cold)
    await asyncio.sleep(THRESHOLD_MS / 2000)
    assert it.factors == {3}
    await it.request(BrokerFencingChanged(node_id=2))
    await it.until(lambda: it.factors == {2})  # the other one did not come
    replicas = {node_id for topic in it.machine.state.diskless_topics()
                for partition in topic.partitions for node_id in partition.replicas}
    assert replicas == {1, 2}
