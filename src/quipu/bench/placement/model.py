"""A cluster in memory: racks, brokers, and the replicas and leaders of very many partitions.

Equal tuples of replicas are one object, so a partition takes two pointers, and most of the memory
is that of the different tuples.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.placing import place
from quipu.controller.managed.planning import Planner
from quipu.controller.managed.topology import Topology
from quipu.model.ids import NodeId

CHUNK: Final = 50_000  # partitions that one planner looks at: what it remembers stays small

Replicas = tuple[NodeId, ...]


class Moves(NamedTuple):
    """What an event has changed."""

    replicas: int = 0  # that were added or removed
    leaders: int = 0  # partitions that have another leader than before
    passes: int = 0  # over all partitions, until nothing was left to do

    def __add__(self, other: tuple[object, ...]) -> "Moves":
        assert isinstance(other, Moves)
        return Moves(self.replicas + other.replicas, self.leaders + other.leaders,
                     self.passes + other.passes)


class PlacementModel:
    """The placement of all partitions, changed by the functions that the controller uses."""

    def __init__(self, brokers: int, racks: int) -> None:
        assert brokers >= racks > 0, (brokers, racks)
        self.racks: dict[str, tuple[NodeId, ...]] = {
            f"r{number:04}": tuple(map(NodeId, range(number, brokers, racks)))
            for number in range(racks)}
        self.load = ReplicaLoad()
        self.replicas: list[Replicas] = []
        self.leaders: list[NodeId] = []
        self._known: dict[Replicas, Replicas] = {}

    def topology(
        self, *, down: Iterable[str] = (), lost: Iterable[str] = (), gone: Iterable[NodeId] = ()
    ) -> Topology:
        """The cluster, with racks that are DEGRADED or UNAVAILABLE, and brokers that left."""
        down, lost, left = set(down), set(lost), set(gone)
        brokers = {rack: tuple(node_id for node_id in nodes if node_id not in left)
                   for rack, nodes in self.racks.items()}
        eligible = {rack: nodes for rack, nodes in brokers.items() if rack not in down | lost}
        return Topology(
            racks=tuple(rack for rack in brokers if rack not in lost),
            rack_of={node_id: rack for rack, nodes in brokers.items() for node_id in nodes},
            eligible=eligible,
            up=frozenset(node_id for nodes in eligible.values() for node_id in nodes),
            gone=frozenset(node_id for rack in lost for node_id in brokers[rack]))

    def create(self, count: int) -> Moves:
        """Create partitions."""
        for replicas in place(self.topology(), self.load, count):
            self.replicas.append(replicas)
            self.leaders.append(replicas[0])
        return Moves(sum(map(len, self.replicas[-count:])), count, 1)

    def elect(self, topology: Topology) -> Moves:
        """Replace leaders that are down by the first replica that is up, as brokers do."""
        elected = 0
        for index, leader in enumerate(self.leaders):
            if leader not in topology.up:
                self.leaders[index] = next(
                    node_id for node_id in self.replicas[index] if node_id in topology.up)
                elected += 1
        return Moves(leaders=elected)

    def reconcile(self, topology: Topology) -> Moves:
        """Take steps until no partition has a next one."""
        total = Moves()
        while True:
            self._known.clear()
            found = Moves(passes=1)
            for first in range(0, len(self.replicas), CHUNK):
                found += self._step(Planner(topology, self.load), first)
            total += found
            if not found.replicas:
                return total

    def _step(self, planner: Planner, first: int) -> Moves:
        """Take the next step of the partitions of one chunk."""
        moves = elected = 0
        for index in range(first, min(first + CHUNK, len(self.replicas))):
            leader = self.leaders[index]
            step = planner.next_step(self.replicas[index], leader)
            if step is not None:
                self.replicas[index] = self._known.setdefault(step.replicas, step.replicas)
                moves += step.moves
                if step.leader != leader:
                    self.leaders[index] = step.leader
                    elected += 1
        return Moves(moves, elected)

    def move(self, index: int, source: NodeId, targets: tuple[NodeId, ...]) -> Moves:
        """An operator moves a replica from one broker to the least loaded one of `targets`."""
        replicas = self.replicas[index]
        place_of = replicas.index(source)
        self.load.drop([source])
        target = self.load.take(targets)
        moved = (*replicas[:place_of], target, *replicas[place_of + 1:])
        if place_of == 0:
            self.load.leads[source] -= 1
            self.load.leads[target] += 1
        self.replicas[index] = self._known.setdefault(moved, moved)
        if self.leaders[index] != source:
            return Moves(2)
        self.leaders[index] = moved[0]
        return Moves(2, 1)

    def partitions_on(self, node_id: NodeId) -> list[int]:
        """The partitions that have a replica on a broker."""
        return [index for index, replicas in enumerate(self.replicas) if node_id in replicas]

    def check(self, topology: Topology) -> None:
        """Assert that each partition has one replica in each rack, and a leader that is up."""
        racks = set(topology.racks)
        checked: set[Replicas] = set()
        for replicas, leader in zip(self.replicas, self.leaders, strict=True):
            assert leader in topology.up, leader
            assert leader in replicas, (leader, replicas)
            if replicas not in checked:
                checked.add(replicas)
                found = [topology.rack_of[node_id] for node_id in replicas]
                assert len(found) == len(racks), (replicas, found)
                assert set(found) == racks, (replicas, found)

    def spread(self, topology: Topology) -> int:
        """How much more replicas the most loaded broker of a rack has than the least loaded."""
        return max(max(loads) - min(loads) for loads in (
            [self.load.replicas[node_id] for node_id in nodes]
            for nodes in topology.eligible.values()))
