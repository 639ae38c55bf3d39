"""What is right and wrong about the replicas of a partition, and the next step to its target.

The target has one replica in each rack that is not given up:

    1  a rack with several replicas keeps one: the leader if it is there, else the first that is up
    2  a rack without a replica gets one, on the least loaded broker that is up there
    3  replicas on brokers that are given up, or not registered, go; so do those in racks that are
       given up

A step adds first, and removes only when nothing is left to add; so a partition never has fewer live
replicas on the way than at the end.  A rack all of whose brokers are down keeps what it has, and
gets nothing: a replica is never placed in another rack instead.

Invariants
    controller.M1  a replica is added only in a rack of the target that has none
    controller.M2  a replica is removed only if its rack has another one, or its broker is given up
                   or not registered; and only if nothing is to be added, and one of those that stay
                   is up
    controller.M3  the leader stays the leader as long as it is a replica and up
    controller.M4  a partition at its target, as far as brokers are up, is left alone: the next step
                   of the last step is none
"""

from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId

Replicas = tuple[NodeId, ...]


class Assessment(NamedTuple):
    """The replicas of a partition, compared with the target."""

    kept: Replicas
    surplus: Replicas  # to be removed
    missing: tuple[str, ...]  # racks that get a replica
    blocked: tuple[str, ...]  # racks that should have one, and have no broker that is up

    @property
    def is_drifted(self) -> bool:
        """Whether the placement differs from what it could be."""
        return bool(self.surplus or self.missing)


class Step(NamedTuple):
    """The next change of a partition's replicas."""

    replicas: Replicas
    leader: NodeId
    moves: int  # replicas that are added or removed


def assess(replicas: Replicas, leader: NodeId, topology: Topology) -> Assessment:
    """Compare the replicas of a partition with the target."""
    present = [node_id for node_id in replicas if node_id not in topology.gone]
    racks = list(map(topology.rack_of.get, present))
    there = set(racks)
    absent = [rack for rack in topology.racks if rack not in there]
    if not absent and len(there) == len(replicas) == len(topology.racks):
        return Assessment(replicas, (), (), ())  # as nearly always
    stay = present
    if len(there) < len(present) or None in there:
        stay = _without_extras(present, racks, leader, topology)
    if not topology.racks:  # every rack is given up, and there is nowhere to go
        stay = list(replicas)
    staying = set(stay)
    return Assessment(
        kept=tuple(stay),
        surplus=tuple([node_id for node_id in replicas if node_id not in staying]),
        missing=tuple([rack for rack in absent if rack in topology.eligible]),
        blocked=tuple([rack for rack in absent if rack not in topology.eligible]))


def _without_extras(
    replicas: Sequence[NodeId], racks: Sequence[str | None], leader: NodeId, topology: Topology
) -> list[NodeId]:
    """Those of `replicas` that stay, of which some share a rack or are not registered."""
    by_rack: dict[str | None, list[NodeId]] = {}
    for node_id, rack in zip(replicas, racks, strict=True):
        by_rack.setdefault(rack, []).append(node_id)
    stay: set[NodeId] = set()
    for name, there in by_rack.items():
        if name in topology.eligible:
            stay.add(_one_of(there, leader, topology.up))
        elif name is not None:  # DEGRADED: nothing of it changes
            stay.update(there)
    return [node_id for node_id in replicas if node_id in stay]


def _one_of(replicas: Sequence[NodeId], leader: NodeId, up: AbstractSet[NodeId]) -> NodeId:
    """The replica of a rack that stays, out of several."""
    if leader in replicas:
        return leader
    return next((node_id for node_id in replicas if node_id in up), replicas[0])


class Planner:
    """Plans the next steps of many partitions on one topology, and counts what it plans.

    `load` is changed: give it a copy of the state's.  Racks that are `settling` get nothing yet.
    """

    def __init__(
        self, topology: Topology, load: ReplicaLoad, settling: Container[str] = frozenset()
    ) -> None:
        self.topology = topology
        self.load = load
        self._settling = settling
        self._known: dict[tuple[Replicas, NodeId], Assessment] = {}

    def assess(self, replicas: Replicas, leader: NodeId) -> Assessment:
        """As `assess`; partitions that are placed alike are compared once."""
        key = replicas, leader
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = assess(replicas, leader, self.topology)
        return found

    def next_step(
        self, replicas: Replicas, leader: NodeId, moves_max: int | None = None
    ) -> Step | None:
        """The next change of a partition; None if it stays as it is (controller.M4).

        At most `moves_max` replicas are added or removed: then another step follows.
        """
        found = self.assess(replicas, leader)
        missing = tuple(rack for rack in found.missing if rack not in self._settling)
        if missing:
            return self._add(replicas, leader, missing[:moves_max])
        if found.missing:
            return None  # nothing is removed before that is added (controller.M2)
        if found.surplus and not self.topology.up.isdisjoint(found.kept):  # controller.M2
            return self._remove(replicas, leader, found.surplus[:moves_max])
        return None

    def _add(self, replicas: Replicas, leader: NodeId, racks: tuple[str, ...]) -> Step:
        """Add a replica in each of `racks` (controller.M1).

        One whose broker is preferred for fewer partitions becomes the preferred leader.  The leader
        stays: an election makes the other one lead, when somebody asks for it (controller.M3).
        """
        load, first = self.load, replicas[0]
        added = [load.take(self.topology.eligible[rack]) for rack in racks]
        preferred = min(added, key=load.leads.__getitem__)
        after = (*replicas, *added)
        if load.leads[preferred] + 1 < load.leads[first]:
            load.leads[first] -= 1
            load.leads[preferred] += 1
            after = (preferred, *(node_id for node_id in after if node_id != preferred))
        assert len(set(after)) == len(after), (replicas, after)
        return Step(after, self._leader(after, leader), len(added))

    def _remove(self, replicas: Replicas, leader: NodeId, surplus: Replicas) -> Step:
        """Remove replicas that are too many (controller.M2)."""
        after = tuple(node_id for node_id in replicas if node_id not in surplus)
        assert after, (replicas, surplus)
        self.load.drop(surplus)
        if after[0] != replicas[0]:
            self.load.leads[replicas[0]] -= 1
            self.load.leads[after[0]] += 1
        return Step(after, self._leader(after, leader), len(surplus))

    def _leader(self, replicas: Replicas, leader: NodeId) -> NodeId:
        """Who leads a partition with these replicas (controller.M3)."""
        up = self.topology.up
        if leader in replicas and leader in up:
            return leader
        stays = leader if leader in replicas else replicas[0]
        return next((node_id for node_id in replicas if node_id in up), stays)
