"""The cluster as one node knows it, and the only way to change it.

A node that is alone decides for itself; in a cluster the same calls go to the controller, wherever
it is, and are answered when this node has applied their effect.

    open, start    the quorum; this node is registered, and has the metadata of that moment
    serve          this node is counted on; chains take it in
    leave, stop    others take its parts; then it is silent

Invariants
    M1 to M4 of decisions.py: order, durability, and what becomes of a decision
    C1  a producer id is used only after the block that it is in was reserved for this node
    C2  a node that is alone has an endless lease: nobody could lead in its place
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from quipu.broker.cluster.changes import Changes
from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.decisions import Decisions
from quipu.broker.cluster.desk import Asked, Desk, Handler
from quipu.broker.cluster.link import ControllerLink
from quipu.broker.cluster.listing import BrokerListing
from quipu.broker.cluster.liveness import Liveness, nobody_hangs_up
from quipu.broker.cluster.machine import Machine
from quipu.broker.cluster.membership import ENDLESS, Endpoints, Membership, Reader
from quipu.broker.cluster.requests import (
    BrokerHeartbeat,
    LeaveCluster,
    MadeTopics,
    MakeTopics,
    RegisterBroker,
    ReservedProducerIds,
    ReserveProducerIds,
    topic_answer,
    wanted_topic,
)
from quipu.broker.cluster.telling import ClusterListener
from quipu.broker.quorum import Quorum, QuorumConfig, QuorumView, StateMachine
from quipu.broker.quorum.driver import CHANGE_TIMEOUT_SECONDS
from quipu.broker.topic_views import TopicViews
from quipu.controller import configs, describe, internal_topics, topics
from quipu.controller.members import BrokerState
from quipu.controller.producer_ids import CHANCE_SIZE, id_for_client
from quipu.controller.state import ClusterState, Topic
from quipu.model.errors import QuipuError
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId, ProducerId, TopicPartition
from quipu.model.settings import BrokerSettings, TopicSettings, topic_settings
from quipu.model.topics import is_internal
from quipu.runtime.clock import Clock
from quipu.runtime.peer_net import PeerNet
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn
from quipu.storage.config import LogConfig
from quipu.storage.data_directory import DataDirectory
from quipu.wire.schema import Message

_log = logging.getLogger(__name__)
Answered = TypeVar("Answered", bound=Message)
MakeQuorum = Callable[[StateMachine], Consensus]

LOG_NAME: Final = "__cluster-0"
LOG_ID: Final = UUID(int=1)  # as in Kafka, where no topic can have it
LOG_CONFIG: Final = LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1)
TIMEOUT_SECONDS: Final = 10.0  # for the controller's answer, where a caller has no other wish


class Cluster:
    """This node's view of the cluster, and the only way to change it."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        rng: Rng,
        make_quorum: MakeQuorum,
        *,
        net: PeerNet | None = None,
        directory_id: UUID = ZERO_UUID,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`net` is missing where this node is alone; then no other knows its data directory.

        `check_room` raises while the disk is too full for more topics.
        """
        self.node_id = settings.own_id
        self.views = TopicViews()
        self._static = settings
        self._clock = clock
        self._net = net
        self._machine = Machine(settings, on_leadership=self._on_leadership)
        self._quorum = make_quorum(self._machine)
        telling = self._machine.telling
        decisions = Decisions(self._quorum, telling)
        self.changes = Changes(settings, self._machine, decisions, rng, check_room)
        self._desk = Desk(
            self._quorum, is_registered=lambda node_id: node_id in self._machine.state.brokers)
        self._link = ControllerLink(self.node_id, self._quorum, self._desk, telling, net=net)
        self._liveness = Liveness(
            self.node_id, self._machine, decisions, clock, rng,
            has_hung_up=nobody_hangs_up if net is None else net.has_hung_up)
        incarnation = rng.uuid() if net is None else net.identity.incarnation
        self._membership = Membership(
            settings, incarnation, self._link, clock, state=lambda: self._machine.state,
            directory_id=directory_id)
        self._listing = BrokerListing(self._machine, clock)
        self._rng = rng
        self._producer_ids = range(0)  # reserved for this node and not given away yet
        self._reserving = asyncio.Lock()
        self._telling_failures: asyncio.Task[None] | None = None
        self._open_desk()

    @classmethod
    async def open(
        cls,
        directory: DataDirectory,
        settings: BrokerSettings,
        clock: Clock,
        rng: Rng,
        *,
        host: str,
        port: int,
    ) -> "Cluster":
        """The started cluster of a node that is alone, known under `host` and `port`."""
        cluster = cls.of(directory, settings, clock, rng)
        await cluster.start(Endpoints(host, port))
        return cluster

    @classmethod
    def of(
        cls,
        directory: DataDirectory,
        settings: BrokerSettings,
        clock: Clock,
        rng: Rng,
        *,
        net: PeerNet | None = None,
    ) -> "Cluster":
        """The cluster of the node whose metadata is in `directory`.

        To be made before `net` starts, so that nobody is refused; to be started after.
        """
        directory_id = (ZERO_UUID if net is None else
                        directory.identify(net.identity.incarnation))
        log = directory.open_log(LOG_NAME, LOG_CONFIG, topic_id=LOG_ID)
        config = QuorumConfig.of(settings)

        def make_quorum(machine: StateMachine) -> Quorum:
            quorum = Quorum(machine, config, log=log, clock=clock, rng=rng, peers=net,
                            lend=directory.reserve.lend)
            directory.rewrites[log] = quorum.rewrite
            return quorum

        return cls(settings, clock, rng, make_quorum, net=net, directory_id=directory_id,
                   check_room=directory.reserve.check)

    # -- this node's life in the cluster

    async def start(self, endpoints: Endpoints) -> None:
        """Take part, under these addresses; returns when the metadata has come here.

        In a cluster it waits for a controller for as long as it takes.
        """
        await self._quorum.start()
        if self._net is None:
            self._membership.lease_until = ENDLESS  # C2
            self._membership.broker_epoch = await self.changes.start_alone(
                endpoints, self._membership.incarnation)
            return
        self._machine.telling.add(_AddressBook(
            self._net, self._static, lambda: self.state, lambda: self.voters))
        self._machine.telling.add(self._listing)
        self._tell_cluster_id()
        await self._membership.join(endpoints)
        self._listing.begin()
        self._tell_cluster_id()

    async def serve(self) -> None:
        """This node is ready: returns when the cluster counts on it."""
        if self._net is None:
            return
        await self._membership.serve()
        if not self._static.controller_quorum_voters and not self.state.chains:
            await self.changes.make_own_chain()

    async def leave(self) -> None:
        """Let others take this node's parts, within controlled.shutdown.timeout.ms."""
        if self._net is not None:
            await self._membership.leave()

    async def stop(self) -> None:
        """Take part no more."""
        self._membership.stop()
        self._liveness.end()
        if self._telling_failures is not None:
            self._telling_failures.cancel()
        await self._quorum.stop(transfer=True)

    def on_metadata_read(self, reader: Reader) -> None:
        """Have `reader` called with every heartbeat: see `Reader`."""
        self._membership.readers.append(reader)

    def follow(self, listener: ClusterListener) -> None:
        """Tell `listener` of every topic there is, and of every change from now on."""
        for topic in list(self.state.topics.values()):
            listener.on_topic_created(topic)
        self._machine.telling.add(listener)

    # -- what holds

    @property
    def state(self) -> ClusterState:
        return self._machine.state

    @property
    def settings(self) -> BrokerSettings:
        """This node's settings, the dynamic ones included."""
        return self._machine.settings

    @property
    def lease_until(self) -> float:
        """In the clock's monotonic seconds: until then nobody else leads what this node leads."""
        return self._membership.lease_until

    @property
    def is_out_of_touch(self) -> bool:
        """Has no controller been heard of for a session?  Then others know better than this node.

        A lease may be over before, while a new controller is elected: that is no reason to send
        clients away, who would wait before they come back.
        """
        return self._net is not None and self._clock.monotonic() >= self._membership.in_touch_until

    @property
    def incarnation(self) -> UUID:
        """Of this process; chains tell by it whether they speak of this one or one before."""
        return self._membership.incarnation

    @property
    def broker_epoch(self) -> int:
        """Of this process's registration; grows with each start."""
        return self._membership.broker_epoch

    def listed_brokers(self, *, for_topics: bool) -> list[BrokerState]:
        """The brokers that clients are told of: see `BrokerListing`."""
        return self._listing.brokers(for_topics=for_topics)

    def is_settled(self, node_id: NodeId) -> bool:
        """May clients be sent to this broker, or do they remember it as down?"""
        return self._listing.is_settled(node_id)

    @property
    def is_controller(self) -> bool:
        """Do decisions run here?"""
        return self._quorum.is_leader

    @property
    def controller_id(self) -> NodeId:
        """Whom clients are told: this node, which is surely up, and passes requests on.

        One that was told the real controller would wait for it after its death.  Who that is,
        `describe_quorum` tells.
        """
        return self.node_id

    def topic_settings(self, topic: Topic) -> TopicSettings:
        """What applies to `topic`: its own settings on top of the broker's."""
        return topic_settings(internal_topics.settings_of(topic), self.settings)

    def ladder(self, node_id: int | None = None) -> describe.Ladder:
        """Where a broker's settings come from."""
        return describe.ladder(
            self.state, self.node_id if node_id is None else node_id, self._static)

    # -- what any node may ask for

    async def ask(
        self, request: Message, answer: type[Answered], *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Answered:
        """The controller's answer, when its effect has come here."""
        return await self._link.ask(request, answer, timeout_seconds=timeout_seconds)

    def answer(self, request: type[Asked], handler: Handler[Asked]) -> None:
        """Have `handler` answer such requests, while this node is the controller."""
        self._desk.on(request, handler)

    async def create_topics(
        self,
        wanted: Sequence[topics.NewTopic],
        *,
        validate_only: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> list[topics.TopicAnswer]:
        made = await self.ask(
            MakeTopics(topics=list(map(wanted_topic, wanted)), validate_only=validate_only),
            MadeTopics, timeout_seconds=timeout_seconds)
        return [topic_answer(topic, self.state) for topic in made.topics]

    async def ensure_internal_topic(
        self, name: str, partitions: int, overrides: Sequence[tuple[str, str]] = ()
    ) -> Topic:
        """The cluster's own topic `name`; created if it is not there yet."""
        assert is_internal(name), name
        if name not in self.state.topics:
            wanted = topics.NewTopic(name, partitions, configs=overrides)
            await self.ask(
                MakeTopics(topics=[wanted_topic(wanted)], is_internal=True), MadeTopics)
        return self.state.topics[name]

    async def new_producer_id(self) -> ProducerId:
        """An id that no producer has, or will be given again, and that nobody can guess."""
        number = await self.next_producer_id()
        return id_for_client(number, self._rng.token(CHANCE_SIZE))

    async def next_producer_id(self) -> ProducerId:
        """The number of an id, for this cluster's next producer alone."""
        if not self._producer_ids:
            async with self._reserving:
                if not self._producer_ids:  # reserved while this one waited its turn
                    block = await self.ask(
                        ReserveProducerIds(node_id=self.node_id), ReservedProducerIds)
                    self._producer_ids = range(block.start, block.end)  # C1
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(producer_id)

    # -- what only the controller does; more of it is in `changes`

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID]]
    ) -> list[topics.TopicAnswer]:
        return await self.changes.delete_topics(wanted)

    async def create_partitions(
        self, wanted: Sequence[topics.NewPartitions], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        return await self.changes.create_partitions(wanted, validate_only=validate_only)

    async def alter_configs(
        self, alterations: Sequence[configs.Alteration], *, validate_only: bool = False
    ) -> list[configs.AlterAnswer]:
        return await self.changes.alter_configs(alterations, validate_only=validate_only)

    async def describe_quorum(self) -> QuorumView:
        """Who takes part in the quorum, and how far each is."""
        await self._quorum.barrier()
        return self._quorum.describe()

    @property
    def refused_count(self) -> int:
        """Messages of the quorum's other nodes that were not taken."""
        return self._quorum.refused_count

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """Who elects the controller."""
        return self._quorum.voters

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = CHANGE_TIMEOUT_SECONDS
    ) -> None:
        """Have others elect the controller; on the controller."""
        await self._quorum.change_voters(voters, timeout_seconds=timeout_seconds)

    # -- what chains tell

    def report_in_sync(
        self, topic_id: UUID, partition: int, node_id: NodeId, *, version: int
    ) -> None:
        """`node_id`, which syncs in the replica set of `version`, has every record."""
        if self._membership.reports.see((topic_id, partition), node_id, version):
            self._membership.tell_soon()

    def report_serving(self, topic_id: UUID, partition: int, *, version: int) -> None:
        """All who serve in the replica set of `version` do: its configuration is committed.

        Said by the head of a partition that moves between chains.
        """
        self.report_in_sync(topic_id, partition, NO_NODE, version=version)

    def report_failure(self, topic_id: UUID, partition: int, why: str) -> None:
        """A log of this node cannot be used: others serve that partition, where there are some."""
        self._membership.fail_partition((topic_id, partition), why)
        self._tell_failures()

    def report_repair(self, topic_id: UUID, partition: int) -> None:
        """It can be again, or is no longer here."""
        self._membership.mend_partition((topic_id, partition))
        self._tell_failures()

    def is_failure_known(self, topic_id: UUID, partition: int) -> bool:
        """Does the metadata say that this node's replica of a partition has failed?"""
        found = self.state.find_partition((topic_id, partition))
        return found is not None and self.node_id in found.place.failed

    @property
    def failures(self) -> dict[str, str]:
        """Partitions of this node whose log has failed, by name, and why."""
        found = {}
        for (topic_id, partition), why in self._membership.failed.items():
            topic = self.state.topics_by_id.get(topic_id)
            name = str(topic_id) if topic is None else topic.name
            found[str(TopicPartition(name, partition))] = why
        return found

    def report_disk_failure(self, why: str) -> None:
        """Nothing can be written here: this node steps back where others serve in its place."""
        if self._net is not None:
            self._membership.step_back(why)

    def _tell_failures(self) -> None:
        """A node that is alone sends no heartbeats: it is told here what they would tell."""
        if self._net is None and self._telling_failures is None:
            self._telling_failures = spawn(self._tell_alone(), "failed logs")

    async def _tell_alone(self) -> None:
        try:
            failed = None
            while failed != self._membership.failed.keys():
                failed = set(self._membership.failed)
                await self.changes.report_failed(self.node_id, failed)
        except QuipuError as error:
            _log.error("failed logs cannot be told: %s", error)
        finally:
            self._telling_failures = None

    @property
    def why_stepped_back(self) -> str | None:
        """The trouble of its own for which the cluster goes on without this node, if it does."""
        membership = self._membership
        return membership.trouble if membership.is_fenced and membership.trouble else None

    # -- within

    def _open_desk(self) -> None:
        self._desk.on(MakeTopics, self.changes.make_topics)
        self._desk.on(ReserveProducerIds, self.changes.reserve_producer_ids)
        self._desk.on(RegisterBroker, self._liveness.register)
        self._desk.on(BrokerHeartbeat, self._liveness.heartbeat)
        self._desk.on(LeaveCluster, self._liveness.leave)
        if self._net is not None:
            self._desk.open(self._net)

    def _on_leadership(self, is_leader: bool) -> None:  # noqa: FBT001 a fact, not a flag
        if self._net is None:
            return  # whoever is alone watches over nobody
        _log.info("this node is the controller" if is_leader else
                  "this node is not the controller any more")
        if is_leader:
            self._liveness.begin(self._quorum.predecessor)
        else:
            self._liveness.end()

    def _tell_cluster_id(self) -> None:
        """Other nodes are to know which cluster they talk to."""
        if self._net is not None and self.state.cluster_id:
            self._net.identity = self._net.identity._replace(cluster_id=self.state.cluster_id)


class _AddressBook:
    """Lets the peers know where the brokers are; voters are known by the settings as well."""

    def __init__(
        self, net: PeerNet, settings: BrokerSettings, state: Callable[[], ClusterState],
        voters: Callable[[], Iterable[NodeId]],
    ) -> None:
        self._net = net
        self._node_id = settings.own_id
        self._voters = {NodeId(voter.node_id) for voter in settings.controller_quorum_voters}
        self._quorum_voters = voters
        self._state = state
        self._known: set[NodeId] = set()
        self.on_brokers_changed()

    def on_brokers_changed(self) -> None:
        found = {
            broker.node_id: broker for broker in self._state().brokers.values()
            if broker.peer_host and broker.node_id != self._node_id}
        for node_id, broker in found.items():
            self._net.know(node_id, broker.peer_host, broker.peer_port)
        self._net.members = frozenset({
            *self._state().brokers, *self._voters, *self._quorum_voters()})
        for node_id in sorted(self._known - found.keys() - self._voters):
            self._net.forget(node_id)
        self._known = set(found)

    def on_topic_created(self, topic: Topic) -> None: ...
    def on_partitions_added(self, topic: Topic, first_new: int) -> None: ...
    def on_topic_deleted(self, topic: Topic) -> None: ...
    def on_config_changed(self, topic: Topic) -> None: ...
    def on_replicas_changed(self, topic: Topic) -> None: ...
