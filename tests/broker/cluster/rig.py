"""Clusters of several nodes in a simulated world: real drivers, a network with faults, a council.

    rig = Rig()                        three nodes, a-0 to a-2, with the numbers 1 to 3
    rig = Rig(with_raft=True)          ... whose metadata is kept by Raft instead of the council
    rig.boot()
    rig.ask(1, lambda cluster: rig.create_topics(cluster, NewTopic("t")))
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from quipu.broker.cluster import ClusterDriver, Endpoints
from quipu.broker.listening import peer_config
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.controller.placement import ChainPlacement
from quipu.controller.topic_requests import NewTopic
from quipu.controller.topic_state import Topic
from quipu.model.chains import MemberState
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.settings import BrokerSettings
from quipu.model.settings_types import Address, Voter
from quipu.runtime.peers.peer_net import Identity
from quipu.sim.twins.peers import SimPeers
from quipu.sim.world import Machine, Violation, World
from quipu.storage.directory.data_directory import DataDirectory
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.cluster.council import Council, Seat
from tests.broker.clusters import ABroker, FollowedPartitions

SESSION_MS: Final = 2000
HEARTBEAT_MS: Final = 200
LEASE_MS: Final = 800
COLD_WAIT_MS: Final = 3000
PEER_PORT: Final = 9192


class Syncing(FollowedPartitions):
    """Partitions whose syncing members have caught up as soon as the tail hears of them."""

    def __init__(self, cluster: ClusterDriver) -> None:
        super().__init__()
        self._cluster = cluster
        self.is_quick = True

    def on_topic_created(self, topic: Topic) -> None:
        super().on_topic_created(topic)
        self.sync(topic)

    def on_replicas_changed(self, topic: Topic) -> None:
        super().on_replicas_changed(topic)
        self.sync(topic)

    def sync(self, topic: Topic) -> None:
        for index, partition in enumerate(topic.partitions if self.is_quick else ()):
            for node_id in partition.replica_set.syncing:
                self._cluster.report_in_sync(
                    topic.topic_id, index, node_id, version=partition.replica_set.version)
            if isinstance(partition.placement, ChainPlacement) and partition.placement.joined:
                self._cluster.report_serving(
                    topic.topic_id, index, version=partition.replica_set.version)


class ClusterProgram:
    """A node that has nothing but its cluster."""

    def __init__(self, rig: "Rig", machine: Machine, node_id: NodeId) -> None:
        self.settings = rig.settings(machine.name, node_id)
        identity = Identity(node_id, machine.name, machine.dice.uuid())
        self.peers = machine.door.peers(identity, peer_config(self.settings), machine.dice)
        if rig.with_raft:
            directory = DataDirectory.open(machine.disk, "data", machine.clock)
            self.cluster = ClusterDriver.of(
                directory, self.settings, machine.clock, machine.dice, net=self.peers)
        else:
            self.cluster = ClusterDriver(
                self.settings, machine.clock, machine.dice,
                lambda state_machine: self._seat(rig, node_id, state_machine), net=self.peers)
        self.chains = Syncing(self.cluster)
        self.broker = ABroker(cluster=self.cluster, rng=machine.dice, partitions=self.chains)
        forwarding.serve(cast("Broker", self.broker))
        self._rig = rig

    def _seat(self, rig: "Rig", node_id: NodeId, state_machine: Any) -> Seat:
        self.seat = Seat(rig.council, node_id, state_machine)
        return self.seat

    async def start(self) -> None:
        await self.peers.start()
        for node_id, machine in self._rig.machines.items():
            self.peers.know(node_id, machine.name, PEER_PORT)
        await self.cluster.start(
            Endpoints(self.settings.node_name, 9092, self.settings.node_name, PEER_PORT))
        self.cluster.follow(self.chains)
        await self.cluster.serve()

    async def stop(self) -> None:
        await self.cluster.leave()
        await self.cluster.stop()
        await self.peers.stop()


class OneSpeaker:
    """A chain has one node at most that may speak for it: who leads it, and has a lease."""

    def __init__(self, rig: "Rig") -> None:
        self._rig = rig

    def look(self, machine: Machine | None) -> None:
        del machine
        speakers: dict[str, NodeId] = {}
        for node_id in self._rig.machines:
            if not self._rig.machines[node_id].is_running:
                continue
            for chain in self._spoken_for(node_id):
                other = speakers.setdefault(chain, node_id)
                if other != node_id:
                    raise Violation(f"nodes {other} and {node_id} both speak for chain {chain}")

    def _spoken_for(self, node_id: NodeId) -> list[str]:
        machine = self._rig.machines[node_id]
        program, process = machine.program, machine.process
        if not isinstance(program, ClusterProgram) or process is None:
            return []
        cluster = program.cluster
        if process.local(machine.world.loop.now) >= cluster.lease_until:
            return []
        chain = cluster.state.chain_of(node_id)
        if chain is None or not cluster.state.is_part(node_id, cluster.incarnation):
            return []
        return [chain.name] if cluster.state.leader_of(chain) == node_id else []


class Rig:
    """Some nodes, and a council."""

    def __init__(
        self,
        seed: int = 1,
        names: tuple[str, ...] = ("a-0", "a-1", "a-2"),
        *,
        with_raft: bool = False,
    ) -> None:
        self.world = World(seed)
        self.with_raft = with_raft
        self.machines: dict[NodeId, Machine] = {}
        for number, name in enumerate(names, start=1):
            node_id = NodeId(number)
            self.machines[node_id] = self.world.machine(
                name, lambda machine, node_id=node_id: ClusterProgram(self, machine, node_id))
        self.council = Council(self.world, self.machines)
        self.world.checkers.append(OneSpeaker(self))

    def settings(self, name: str, node_id: NodeId) -> BrokerSettings:
        return BrokerSettings(
            node_id=node_id, node_name=name, peer_listener=Address(name, PEER_PORT),
            broker_session_timeout_ms=SESSION_MS, broker_heartbeat_interval_ms=HEARTBEAT_MS,
            broker_lease_ms=LEASE_MS, chain_cold_start_wait_ms=COLD_WAIT_MS,
            broker_rack=f"rack-{node_id}",
            controller_quorum_voters=tuple(self._voters()))

    def _voters(self) -> list[Voter]:
        return [Voter(node_id, Address(machine.name, PEER_PORT))
                for node_id, machine in self.machines.items()]

    # -- machines

    def boot(self, *node_ids: int) -> None:
        """Start nodes, all unless some are named, and wait until they serve."""
        booted = [self.machines[NodeId(each)] for each in node_ids or self.machines]
        for machine in booted:
            machine.boot()
        self.until(lambda: all(machine.is_up for machine in booted), "started")

    def chain(self, name: str = "a") -> None:
        """Make a chain of all nodes of that name."""
        self.ask(self.controller, lambda cluster: cluster.controller.create_chain(name))
        self.until(lambda: all(name in self.cluster(each).state.chains for each in self.machines),
                   "known everywhere")

    def program(self, node_id: int) -> ClusterProgram:
        program = self.machines[NodeId(node_id)].program
        assert isinstance(program, ClusterProgram)
        return program

    def cluster(self, node_id: int) -> ClusterDriver:
        return self.program(node_id).cluster

    def kill(self, node_id: int) -> None:
        self.machines[NodeId(node_id)].kill()
        self.council.seats.pop(NodeId(node_id), None)

    def stop(self, node_id: int) -> None:
        machine = self.machines[NodeId(node_id)]
        machine.stop()
        self.until(lambda: machine.is_dead, "stopped")

    def cut_off(self, node_id: int) -> None:
        """No other node hears of this one, nor it of them."""
        here = self.machines[NodeId(node_id)].name
        for other in self.machines.values():
            if other.name != here:
                self.world.net.cut(here, other.name)
                self.world.net.cut(other.name, here)

    def hang_up(self, node_id: int) -> None:
        """Every connection from and to this node is closed; the node lives."""
        self.peers(node_id).reset()

    async def create_topics(
        self, cluster: ClusterDriver, *topics: NewTopic, timeout_seconds: float = 10.0
    ) -> list[CreatableTopicResult]:
        """Have topics created as a client of that node does, wherever the controller is."""
        broker = cast("Broker", self.program(cluster.node_id).broker)
        request = CreateTopicsRequest(topics=[
            CreatableTopic(name=topic.name, num_partitions=topic.partition_count,
                           replication_factor=topic.replication_factor,
                           configs=[CreatableTopicConfig(name=name, value=value)
                                    for name, value in topic.configs]) for topic in topics])
        response = await forwarding.request_controller(
            broker, request, Context(request.VERSIONS[-1], 1, "c", "::1"),
            timeout_seconds=timeout_seconds)
        assert isinstance(response, CreateTopicsResponse)
        return response.topics

    # -- time

    def run_for(self, seconds: float) -> None:
        self.world.run_for(seconds)

    def until(self, done: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        self.world.run_until(done, seconds, what)

    def ask(self, node_id: int, work: Callable[[ClusterDriver], Awaitable[Any]]) -> Any:
        """What a node's cluster returns, or the error that it raises."""
        outcome: list[Any] = []

        async def asked() -> None:
            try:
                outcome.append(await work(self.cluster(node_id)))
            except Exception as error:  # noqa: BLE001 it is raised to the test
                outcome.append(error)

        self.world.run_on(self.machines[NodeId(node_id)], asked, "ask")
        self.until(lambda: bool(outcome), "answered")
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    # -- what is seen

    @property
    def controller(self) -> NodeId:
        """The controller; time passes until there is one, so not to be asked while it does."""
        self.until(lambda: self._controllers() != [], "led")
        return self._controllers()[0]

    def _controllers(self) -> list[NodeId]:
        found = [node_id for node_id, machine in self.machines.items()
                 if machine.is_up and machine.is_running and self.cluster(node_id).is_controller]
        if self.with_raft:  # who was deposed may not know it yet
            return sorted(found, key=lambda node_id: -self.cluster(node_id)._quorum.term)
        return [node_id for node_id in found if node_id == self.council.leader]

    @property
    def others(self) -> list[NodeId]:
        """Every node that runs and is not the controller."""
        controller = self.controller
        return [node_id for node_id, machine in self.machines.items()
                if node_id != controller and machine.is_up]

    def serving(self, chain: str = "a", *, seen_by: int | None = None) -> list[int]:
        """Who serves, as the controller or some other node sees it."""
        if seen_by is None:
            seen_by = next(iter(self._controllers()), None)
        if seen_by is None:
            return []
        state = self.cluster(seen_by).state
        return [member.node_id for member in state.chains[chain].members
                if member.state is MemberState.SERVING]

    def leader_of(self, topic: str, *, seen_by: int) -> int | None:
        leader = self.cluster(seen_by).state.topics[topic].partitions[0].leader
        return None if leader == NO_NODE else leader

    def peers(self, node_id: int) -> SimPeers:
        peers = self.program(node_id).peers
        assert isinstance(peers, SimPeers)
        return peers
