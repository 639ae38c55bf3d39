"""Planted bugs of managed placement: each breaks one rule of racks, plans or reconciliation."""

from collections.abc import Container, Mapping
from dataclasses import replace

import pytest

from quipu.broker.cluster.reconciliation import Reconciliation
from quipu.broker.cluster.term_clock import TermClock
from quipu.controller import derived_topics, racks
from quipu.controller.decision import Decision
from quipu.controller.managed import planning
from quipu.controller.managed.planning import Assessment, Planner, Replicas, Step
from quipu.controller.managed.topology import Topology
from quipu.controller.members import BrokerState
from quipu.controller.placement import DisklessPlacement
from quipu.controller.racks import Rack, RackState
from quipu.model.ids import NodeId, TimestampMs

# -- racks


def deadlines_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """broker.cluster.R3: a new controller gives each broker its whole threshold again."""
    begin = Reconciliation.begin
    began: dict[int, int] = {}

    def mutant_begin(self: Reconciliation) -> None:
        began[id(self)] = self._clock.now_ms()
        begin(self)

    def mutant(self: Reconciliation) -> Decision[None]:
        brokers = [replace(each, fenced_at_ms=max(each.fenced_at_ms, began[id(self)]))
                   for each in self._state.brokers.values()]
        return Decision([*racks.liveness_records(
            brokers, self._clock.now_ms(), self._threshold_ms)], [])

    patch.setattr(Reconciliation, "begin", mutant_begin)
    patch.setattr(Reconciliation, "_liveness_decision", mutant)


def clocks_are_believed(patch: pytest.MonkeyPatch) -> None:
    """broker.cluster.R3: a clock that is set while a controller leads moves the deadlines."""
    def mutant(self: TermClock) -> TimestampMs:
        return self._clock.now_ms()

    patch.setattr(TermClock, "now_ms", mutant)


def one_broker_is_the_rack(patch: pytest.MonkeyPatch) -> None:
    """controller.K1: a rack is given up with the first of its brokers."""
    rack_at = racks._rack

    def mutant(name: str, members: list[BrokerState]) -> Rack:
        rack = rack_at(name, members)
        is_gone = not rack.eligible and bool(rack.given_up)
        return rack._replace(state=RackState.UNAVAILABLE) if is_gone else rack

    patch.setattr(racks, "_rack", mutant)


def changed_topology(patch: pytest.MonkeyPatch, changed: "type[_Change]") -> None:
    of_racks = Topology.of_racks.__func__  # type: ignore[attr-defined]  # of a class method

    def mutant(cls: type[Topology], found: Mapping[str, Rack]) -> Topology:
        topology: Topology = of_racks(cls, found)
        return changed.of(topology)

    patch.setattr(Topology, "of_racks", classmethod(mutant))


class _Change:
    """What planning sees instead of the racks."""

    @staticmethod
    def of(topology: Topology) -> Topology:
        return topology


class _OnlyHealthy(_Change):
    @staticmethod
    def of(topology: Topology) -> Topology:
        return topology._replace(racks=tuple(topology.eligible), gone=frozenset(
            node_id for node_id, rack in topology.rack_of.items()
            if rack not in topology.eligible or node_id in topology.gone))


class _Elsewhere(_Change):
    @staticmethod
    def of(topology: Topology) -> Topology:
        others = next(iter(topology.eligible.values()), None)
        if others is None:
            return topology
        return topology._replace(
            eligible={rack: topology.eligible.get(rack, others) for rack in topology.racks})


def degraded_is_lost(patch: pytest.MonkeyPatch) -> None:
    """D13: replicas are removed from a rack as soon as it is down."""
    changed_topology(patch, _OnlyHealthy)


def replaced_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """D14, controller.M1: what a rack that is down should have is placed in another."""
    changed_topology(patch, _Elsewhere)


# -- plans


def removes_first(patch: pytest.MonkeyPatch) -> None:
    """controller.M2: replicas are removed before others are added."""
    next_step = Planner.next_step

    def mutant(
        self: Planner, replicas: Replicas, leader: NodeId, moves_max: int | None = None
    ) -> Step | None:
        found = self.assess(replicas, leader)
        if found.surplus and found.missing and not self.topology.up.isdisjoint(found.kept):
            return self._remove(replicas, leader, found.surplus[:moves_max])
        return next_step(self, replicas, leader, moves_max)

    patch.setattr(Planner, "next_step", mutant)


def extras_stay(patch: pytest.MonkeyPatch) -> None:
    """D15: a rack keeps two replicas."""
    assess = planning.assess

    def mutant(replicas: Replicas, leader: NodeId, topology: Topology) -> Assessment:
        found = assess(replicas, leader, topology)
        return found._replace(surplus=tuple(
            node_id for node_id in found.surplus if node_id not in topology.up))

    patch.setattr(planning, "assess", mutant)


def preferred_at_once(patch: pytest.MonkeyPatch) -> None:
    """controller.M3: with each step the first replica leads."""
    def mutant(self: Planner, replicas: Replicas, leader: NodeId) -> NodeId:
        del leader
        return next((each for each in replicas if each in self.topology.up), replicas[0])

    patch.setattr(Planner, "_leader", mutant)


def returns_lead(patch: pytest.MonkeyPatch) -> None:
    """controller.D3: a preferred replica leads as soon as it is up again."""
    def mutant(placement: DisklessPlacement, up: Container[NodeId]) -> DisklessPlacement:
        first = next((each for each in placement.replicas if each in up), placement.leader)
        return placement._replace(leader=first)

    patch.setattr(derived_topics, "elected", mutant)


# -- reconciliation


def unpaced(patch: pytest.MonkeyPatch) -> None:
    """broker.cluster.R1: everything is moved at once."""
    def mutant(self: Reconciliation) -> None:
        self._allowance = 1e9

    patch.setattr(Reconciliation, "_allow", mutant)


def operators_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """D18: what operators do to topics is looked at only when brokers change."""
    patch.setattr(Reconciliation, "_changed", lambda *_: None)
