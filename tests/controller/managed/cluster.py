"""A cluster of racks for tests of managed placement: the controller's decisions, without brokers.

Every record is applied as it is read from the metadata log, and after each of them the load of
brokers is counted again (controller.L1).
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar
from uuid import UUID

from quipu.controller import brokers, elections, racks, reassignment
from quipu.controller.brokers import Registration
from quipu.controller.decision import Decision
from quipu.controller.elections import ElectionType
from quipu.controller.managed.describing import PlacementDescription, describe
from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.planning import Planner
from quipu.controller.managed.reconciling import Bounds, Progress, reconcile
from quipu.controller.managed.topology import Topology
from quipu.controller.placement import DisklessPlacement
from quipu.controller.racks import Rack
from quipu.controller.reassignment import Reassignment
from quipu.controller.records import ClusterCreated, Record, decode_record, encode_record
from quipu.controller.snapshot import records_of
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topic_state import PartitionState, diskless_replicas
from quipu.controller.topics import TopicResult, create_partitions, create_topics, delete_topics
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID, NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from tests.controller.states import incarnation

Result = TypeVar("Result")
SETTINGS = BrokerSettings(diskless_storage_system_enable=True)
THRESHOLD_MS = 300_000
BEGAN_MS = 1_700_000_000_000
STEPS_MAX = 8  # passes from any placement to its target: add, remove, and one that finds nothing


class Managed:
    """Brokers in racks, diskless topics, and a controller whose clock the test moves."""

    def __init__(self, **by_rack: int) -> None:
        """So many brokers in each rack, numbered from 1 on; all up."""
        self.state = ClusterState()
        self.state.apply(ClusterCreated(cluster_id="cluster-of-tests"))
        self.now_ms = BEGAN_MS
        self.records: list[Record] = []  # all that were decided
        self._life = 0
        node_id = 0
        for rack, count in by_rack.items():
            for _ in range(count):
                node_id += 1
                self.start(node_id, rack)

    def decide(self, decision: Decision[Result]) -> list[Result]:
        for record in decision.records:
            self.state.apply(decode_record(encode_record(record)))
            self.records.append(record)
            assert self.state.diskless_load == self.counted(), record  # controller.L1
        return decision.results

    def counted(self) -> ReplicaLoad:
        """The load of all brokers, counted anew."""
        load = ReplicaLoad()
        for topic in self.state.topics.values():
            load.count_all(diskless_replicas(topic.partitions))
        return load

    # -- brokers

    def register(self, node_id: int, rack: str | None) -> brokers.BrokerState:
        """A process of a broker starts; it is fenced until `unfence`."""
        self._life += 1
        (broker,) = self.decide(brokers.register(self.state, Registration(
            node_id=NodeId(node_id), name=f"n-{node_id}", host=f"host-{node_id}", port=9092,
            incarnation=incarnation(node_id, self._life), rack=rack), quiet=True,
            now_ms=self.now_ms))
        return broker

    def unfence(self, node_id: int) -> None:
        epoch = self.state.brokers[NodeId(node_id)].epoch
        self.decide(brokers.unfence(self.state, NodeId(node_id), epoch))

    def start(self, node_id: int, rack: str | None = None) -> None:
        """A broker starts, in the rack that it had unless another is given, and is up."""
        found = self.state.brokers.get(NodeId(node_id))
        self.register(node_id, rack if found is None or rack is not None else found.rack)
        self.unfence(node_id)

    def kill(self, *node_ids: int) -> None:
        """No heartbeats of brokers come any more."""
        self.decide(brokers.fence(self.state, map(NodeId, node_ids), now_ms=self.now_ms))

    def stop(self, node_id: int) -> None:
        """A broker shuts down."""
        epoch = self.state.brokers[NodeId(node_id)].epoch
        self.decide(brokers.stop(self.state, NodeId(node_id), epoch, now_ms=self.now_ms))

    def unregister(self, node_id: int) -> None:
        self.decide(brokers.unregister(self.state, NodeId(node_id)))

    # -- racks

    def tick(self, threshold_ms: int = THRESHOLD_MS) -> list[Record]:
        """The controller looks at its clock."""
        records: list[Record] = [*racks.liveness_records(
            self.state.brokers.values(), self.now_ms, threshold_ms)]
        decision: Decision[None] = Decision(records, [])
        self.decide(decision)
        return records

    def wait(self, ms: int) -> None:
        """Let time pass, and the controller look at its clock."""
        self.now_ms += ms
        self.tick()

    def lose(self, *node_ids: int) -> None:
        """Brokers are down for so long that they are given up."""
        self.kill(*node_ids)
        self.wait(THRESHOLD_MS + 1)

    def rack(self, name: str) -> Rack:
        return racks.racks_of(self.state.brokers.values())[name]

    @property
    def topology(self) -> Topology:
        return Topology.of(self.state.brokers.values())

    # -- topics

    def create(self, count: int = 1, name: str = "t", factor: int = -1) -> TopicResult:
        wanted = NewTopic(name, count, factor, (), (("diskless.enable", "true"),))
        topic_id = UUID(int=100 + self.state.next_version * 10)
        (result,) = self.decide(create_topics(self.state, [wanted], SETTINGS, lambda: topic_id))
        return result

    def grow(self, count: int, name: str = "t") -> None:
        (result,) = self.decide(create_partitions(
            self.state, [NewPartitions(name, count)], SETTINGS))
        assert result.code is Code.NONE, result

    def delete(self, name: str) -> None:
        self.decide(delete_topics(self.state, [(name, ZERO_UUID)], SETTINGS))

    def move(self, replicas: Iterable[int], partition: int = 0, name: str = "t") -> Code:
        """An operator gives a partition these replicas."""
        (result,) = self.decide(reassignment.alter(
            self.state, [Reassignment(name, partition, [*replicas])]))
        return result.code

    def elect(self, partition: int = 0, name: str = "t") -> Code:
        (result,) = self.decide(elections.elect(
            self.state, ElectionType.PREFERRED, [TopicPartition(name, partition)]))
        return result.code

    # -- reconciliation

    def step(self, moves: int = 1_000_000, *, looked_at: int = 1000) -> Progress:
        """One decision about each topic; returns the sum."""
        total = Progress(0)
        for topic in self.state.diskless_topics():
            planner = Planner(self.topology, self.state.diskless_load.copy())
            (found,) = self.decide(reconcile(
                self.state, topic, 0, planner, Bounds(looked_at, moves - total.moves)))
            total = Progress(0, total.drifted + found.drifted, total.moves + found.moves,
                             total.is_cut or found.is_cut)
        return total

    def settle(self) -> int:
        """Take steps until none is left; returns the number of moves."""
        moves = 0
        for _ in range(STEPS_MAX):
            found = self.step()
            moves += found.moves
            if not found.moves:
                return moves
        raise AssertionError("no fixed point")

    # -- what there is

    def partitions(self) -> Iterator[PartitionState]:
        for topic in self.state.diskless_topics():
            yield from topic.partitions

    def placements(self) -> dict[tuple[UUID, int], DisklessPlacement]:
        """Of all diskless partitions."""
        found = {}
        for topic in self.state.diskless_topics():
            for index, partition in enumerate(topic.partitions):
                assert isinstance(partition.placement, DisklessPlacement)
                found[topic.topic_id, index] = partition.placement
        return found

    def racks_of(self, replicas: Iterable[NodeId]) -> list[str]:
        return [racks.rack_of(self.state.brokers[node_id]) for node_id in replicas]

    def replicas(self, partition: int = 0, name: str = "t") -> tuple[int, ...]:
        return self.state.topics[name].partitions[partition].replicas

    def leader(self, partition: int = 0, name: str = "t") -> int:
        return self.state.topics[name].partitions[partition].leader

    def described(
        self, partition: int = 0, name: str = "t", *, auto: bool = True
    ) -> PlacementDescription:
        return describe(self.state.topics[name].partitions[partition], self.topology,
                        auto_reconcile=auto)

    def again(self) -> ClusterState:
        """The state that is made from its own snapshot."""
        copy = ClusterState()
        for record in records_of(self.state):
            copy.apply(decode_record(encode_record(record)))
        return copy
