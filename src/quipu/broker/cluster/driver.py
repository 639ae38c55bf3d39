"""Drives this node's part in the cluster: its metadata, membership, and requests to the controller.

Changes of the metadata are requested from the controller, which may be this node
(controller_channel.py); a request returns when this node has applied the change.

    start          join the quorum, register this node, and apply the metadata up to that moment
    serve          be unfenced, so that this node serves in its chain
    leave, stop    let other nodes lead and serve instead; then send nothing more

Invariants
    broker.cluster.C1  a producer id is used only after its block was reserved for this node
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.controller import Controller
from quipu.broker.cluster.controller_channel import ControllerChannel, ControllerResponse
from quipu.broker.cluster.controller_server import (
    ControllerRequest,
    ControllerServer,
    RequestHandler,
)
from quipu.broker.cluster.decision_queue import DecisionQueue
from quipu.broker.cluster.listing import BrokerListing
from quipu.broker.cluster.liveness import Liveness
from quipu.broker.cluster.membership import Endpoints, Membership, Reader
from quipu.broker.cluster.metadata_listeners import MetadataListener
from quipu.broker.cluster.migrations import MigrationProgress, MigrationTally
from quipu.broker.cluster.reconciliation import Reconciliation
from quipu.broker.cluster.requests import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControlledShutdownRequest,
    CreateInternalTopicsRequest,
    CreateInternalTopicsResponse,
    InternalTopic,
    InternalTopicConfig,
)
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.broker.cluster.term_clock import TermClock
from quipu.broker.quorum import Quorum, QuorumConfig, QuorumView, StateMachine
from quipu.broker.quorum.driver import CHANGE_TIMEOUT_SECONDS
from quipu.broker.serving.topic_views import TopicViews
from quipu.controller import describe_configs, internal_topics
from quipu.controller.members import BrokerState
from quipu.controller.producer_ids import CHANCE_SIZE, id_for_client
from quipu.controller.state import ClusterState, Key
from quipu.controller.topic_state import Topic
from quipu.model.ids import NO_NODE, ZERO_UUID, NodeId, ProducerId, TopicPartition
from quipu.model.settings import BrokerSettings, TopicSettings, topic_settings
from quipu.model.topics import is_internal
from quipu.runtime.clock import Clock
from quipu.runtime.peers.peer_net import PeerNet
from quipu.runtime.rng import Rng
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.wire.schema import Message

_log = logging.getLogger(__name__)
MakeQuorum = Callable[[StateMachine], Consensus]

LOG_NAME: Final = "__cluster-0"
LOG_ID: Final = UUID(int=1)  # as in Kafka, where no topic can have it
LOG_CONFIG: Final = LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1)
TIMEOUT_SECONDS: Final = 10.0  # for the controller's response, unless the caller says


class ClusterDriver:
    """The cluster as this node sees it: its metadata, this node's membership, the controller."""

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
        """`net` is None for a cluster of one node, which needs no `directory_id`.

        `check_room` raises while the disk is too full for more topics.
        """
        self.node_id = settings.own_id
        self.views = TopicViews()
        self._static = settings
        self._clock = clock
        self._net = net
        self._machine = MetadataStateMachine(settings, on_leadership=self._on_leadership)
        self._quorum = make_quorum(self._machine)
        listeners = self._machine.listeners
        decisions = DecisionQueue(self._quorum, listeners)
        self.controller = Controller(settings, self._machine, decisions, rng, check_room)
        self._server = ControllerServer(
            self._quorum, is_registered=lambda node_id: node_id in self._machine.state.brokers)
        self._channel = ControllerChannel(
            self.node_id, self._quorum, self._server, listeners, net=net)
        self._term_clock = TermClock(clock)
        self._liveness = Liveness(
            self.node_id, self._machine, decisions, self._term_clock, rng,
            has_hung_up=None if net is None else net.has_hung_up)
        self.reconciliation = Reconciliation(self._machine, decisions, self._term_clock)
        listeners.add(self.reconciliation)
        incarnation = rng.uuid() if net is None else net.identity.incarnation
        self._membership = Membership(
            settings, incarnation, self._channel, clock, state=lambda: self._machine.state,
            directory_id=directory_id, is_alone=net is None)
        self._listing = BrokerListing(self._machine, clock)
        self._rng = rng
        self._producer_ids = range(0)  # reserved for this node and not used yet
        self._reserving = asyncio.Lock()
        self._serve_controller_requests()

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
    ) -> "ClusterDriver":
        """The started cluster of one node, which clients reach at `host` and `port`."""
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
    ) -> "ClusterDriver":
        """The cluster of the node whose metadata is in `directory`.

        Create it before `net` starts, so that no message of a peer is refused; start it after.
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

    # -- this node's membership

    async def start(self, endpoints: Endpoints) -> None:
        """Join with these addresses; returns when the metadata is applied here.

        In a cluster of several nodes it waits for a controller without a limit.
        """
        await self._quorum.start()
        if self._net is None:
            await self._membership.join(endpoints)
            return
        self._machine.listeners.add(_AddressBook(
            self._net, self._static, lambda: self.state, lambda: self.voters))
        self._machine.listeners.add(self._listing)
        self._announce_cluster_id()
        await self._membership.join(endpoints)
        self._listing.begin()
        self._announce_cluster_id()

    async def serve(self) -> None:
        """Report that this node is ready; returns when it is unfenced."""
        if self._net is not None:
            await self._membership.serve()

    async def leave(self) -> None:
        """Let other nodes lead and serve instead, within controlled.shutdown.timeout.ms."""
        if self._net is not None:
            await self._membership.leave()

    async def stop(self) -> None:
        """Leave the quorum, and send no more heartbeats."""
        self._membership.stop()
        self._liveness.end()
        self.reconciliation.end()
        await self._quorum.stop(transfer=True)

    def on_metadata_read(self, reader: Reader) -> None:
        """Call `reader` with every heartbeat: see `Reader`."""
        self._membership.readers.append(reader)

    def follow(self, listener: MetadataListener) -> None:
        """Notify `listener` of every existing topic, and of every change from now on."""
        for topic in list(self.state.topics.values()):
            listener.on_topic_created(topic)
        self._machine.listeners.add(listener)

    def on_settings(self, use: Callable[[BrokerSettings], None]) -> None:
        """Call `use` with this node's settings, now and after each change of a dynamic one."""
        use(self.settings)
        self._machine.settings_users.append(use)

    # -- the current state

    @property
    def state(self) -> ClusterState:
        return self._machine.state

    @property
    def settings(self) -> BrokerSettings:
        """This node's settings, the dynamic ones included."""
        return self._machine.settings

    @property
    def lease_until(self) -> float:
        """Until then no other node leads this node's partitions; in monotonic seconds."""
        return self._membership.lease_until

    @property
    def is_out_of_touch(self) -> bool:
        """Whether no controller has responded for a session: other nodes have newer metadata.

        The lease may end before that, while a new controller is elected; then clients are not
        disconnected, because they would back off before they connect again.
        """
        return self._net is not None and self._clock.monotonic() >= self._membership.in_touch_until

    @property
    def incarnation(self) -> UUID:
        """The id of this process: members of chains are processes, not nodes."""
        return self._membership.incarnation

    @property
    def broker_epoch(self) -> int:
        """The epoch of this process's registration; it grows with each start."""
        return self._membership.broker_epoch

    def listed_brokers(self, *, for_topics: bool) -> list[BrokerState]:
        """The brokers that clients are shown (listing.py)."""
        return self._listing.brokers(for_topics=for_topics)

    def is_settled(self, node_id: NodeId) -> bool:
        """Whether clients may be sent to this broker (listing.py)."""
        return self._listing.is_settled(node_id)

    @property
    def is_controller(self) -> bool:
        """Whether this node is the controller."""
        return self._quorum.is_leader

    @property
    def controller_id(self) -> NodeId:
        """The controller that clients are shown: this node, which is up, and forwards requests.

        A client that knew the real controller would wait for it after its failure.
        `describe_quorum` returns the real one.
        """
        return self.node_id

    def topic_settings(self, topic: Topic) -> TopicSettings:
        """The settings of `topic`: its own override the broker's."""
        return topic_settings(internal_topics.settings_of(topic), self.settings)

    def layers(self, node_id: int | None = None) -> describe_configs.ConfigLayers:
        """The sources of a broker's settings, by precedence."""
        return describe_configs.layers(
            self.state, self.node_id if node_id is None else node_id, self._static)

    # -- requests to the controller

    async def ask_controller(
        self, request: Message, response: type[ControllerResponse], *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> ControllerResponse:
        """The controller's response, once its effect is applied here (controller_channel.py)."""
        return await self._channel.ask(request, response, timeout_seconds=timeout_seconds)

    def serve_requests(
        self, request: type[ControllerRequest], handler: RequestHandler[ControllerRequest]
    ) -> None:
        """Call `handler` for requests of this type, while this node is the controller."""
        self._server.on(request, handler)

    async def ensure_internal_topic(
        self, name: str, partitions: int, overrides: Sequence[tuple[str, str]] = ()
    ) -> Topic:
        """The internal topic `name`; created if it does not exist."""
        assert is_internal(name), name
        if name not in self.state.topics:
            topic = InternalTopic(name=name, partition_count=partitions, configs=[
                InternalTopicConfig(name=key, value=value) for key, value in overrides])
            await self.ask_controller(
                CreateInternalTopicsRequest(topics=[topic], is_internal=True),
                CreateInternalTopicsResponse)
        return self.state.topics[name]

    async def new_producer_id(self) -> ProducerId:
        """A new producer id, unique and hard to guess."""
        number = await self.next_producer_id()
        return id_for_client(number, self._rng.token(CHANCE_SIZE))

    async def next_producer_id(self) -> ProducerId:
        """The next number for a producer id, unique in the cluster."""
        if not self._producer_ids:
            async with self._reserving:
                if not self._producer_ids:  # another task may have reserved a block meanwhile
                    block = await self.ask_controller(
                        AllocateProducerIdsRequest(node_id=self.node_id),
                        AllocateProducerIdsResponse)
                    self._producer_ids = range(block.start, block.end)  # broker.cluster.C1
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(producer_id)

    # -- the quorum

    async def describe_quorum(self) -> QuorumView:
        """The voters and observers of the quorum, and the progress of each; on the controller."""
        await self._quorum.barrier()
        return self._quorum.describe()

    @property
    def refused_count(self) -> int:
        """Messages of other nodes to the quorum that were rejected."""
        return self._quorum.refused_count

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """The nodes that elect the controller."""
        return self._quorum.voters

    async def change_voters(
        self, voters: Iterable[NodeId], *, timeout_seconds: float = CHANGE_TIMEOUT_SECONDS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Change the voters of the quorum; on the controller.  `check` raises to give up."""
        await self._quorum.change_voters(voters, timeout_seconds=timeout_seconds, check=check)

    # -- reports of chains and logs

    def report_in_sync(
        self, topic_id: UUID, partition: int, node_id: NodeId, *, version: int
    ) -> None:
        """Report that `node_id`, which syncs in the replica set of `version`, has every record."""
        if self._membership.reports.see((topic_id, partition), node_id, version):
            self._membership.heartbeat_soon()

    def report_serving(self, topic_id: UUID, partition: int, *, version: int) -> None:
        """Report that the configuration of the replica set of `version` is committed.

        The head of a partition that moves between chains reports this.
        """
        self.report_in_sync(topic_id, partition, NO_NODE, version=version)

    @property
    def migrations(self) -> MigrationTally:
        """How far migrations to diskless topics are; on the controller."""
        return self._liveness.migrations

    def report_migrations(self, found: Mapping[Key, tuple[int, MigrationProgress]]) -> None:
        """Report how far all sealed partitions are that this node leads, with their versions."""
        reports = self._membership.migrations
        reports.keep(found)
        is_news = [reports.see(key, *each) for key, each in found.items()]
        if any(is_news):
            self._membership.heartbeat_soon()

    def report_failure(self, topic_id: UUID, partition: int, why: str) -> None:
        """Report that a log of this node has failed: other replicas serve the partition."""
        self._membership.fail_partition((topic_id, partition), why)

    def report_repair(self, topic_id: UUID, partition: int) -> None:
        """Report that the log works again, or is not on this node any more."""
        self._membership.mend_partition((topic_id, partition))

    def is_failure_known(self, topic_id: UUID, partition: int) -> bool:
        """Whether the metadata has this node's replica of a partition as failed."""
        found = self.state.find_partition((topic_id, partition))
        return found is not None and self.node_id in found.failed_replicas

    @property
    def failures(self) -> dict[str, str]:
        """The partitions of this node whose log has failed, and their errors."""
        found = {}
        for (topic_id, partition), why in self._membership.failed.items():
            topic = self.state.topics_by_id.get(topic_id)
            name = str(topic_id) if topic is None else topic.name
            found[str(TopicPartition(name, partition))] = why
        return found

    def report_disk_failure(self, why: str) -> None:
        """Report that the disk has failed: other nodes serve instead, where they can."""
        if self._net is not None:
            self._membership.step_back(why)

    @property
    def why_stepped_back(self) -> str | None:
        """The failure for which this node asked to be fenced, and is; None if there is none."""
        membership = self._membership
        return membership.trouble if membership.is_fenced and membership.trouble else None

    # -- internals

    def _serve_controller_requests(self) -> None:
        self._server.on(CreateInternalTopicsRequest, self.controller.create_internal_topics)
        self._server.on(AllocateProducerIdsRequest, self.controller.allocate_producer_ids)
        self._server.on(BrokerRegistrationRequest, self._liveness.register)
        self._server.on(BrokerHeartbeatRequest, self._liveness.heartbeat)
        self._server.on(ControlledShutdownRequest, self._liveness.leave)
        if self._net is not None:
            self._server.listen(self._net)

    def _on_leadership(self, is_leader: bool) -> None:  # noqa: FBT001 a fact, not a flag
        if is_leader:
            self._term_clock.begin()
            self.reconciliation.begin(is_cold=self._quorum.previous_leader is None)
        else:
            self.reconciliation.end()
        if self._net is None:
            return  # a cluster of one node needs no liveness checks
        _log.info("this node is the controller" if is_leader else
                  "this node is not the controller any more")
        if is_leader:
            self._liveness.begin(self._quorum.previous_leader)
        else:
            self._liveness.end()

    def _announce_cluster_id(self) -> None:
        """Let the peer connections check that other nodes belong to this cluster."""
        if self._net is not None and self.state.cluster_id:
            self._net.identity = self._net.identity._replace(cluster_id=self.state.cluster_id)


class _AddressBook:
    """Gives the peer connections the addresses of all brokers, as the metadata changes."""

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
