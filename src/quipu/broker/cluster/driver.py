"""The cluster as one node knows it, and the only way to change it.

A node that is alone decides for itself; in a cluster the same calls go to the controller, wherever
it is, and are answered when this node has applied their effect.

Invariants
    M1 to M4 of decisions.py: order, durability, and what becomes of a decision
    C1  a producer id is used only after the block that it is in was reserved for this node
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from quipu.broker.cluster.alone import Alone
from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.decisions import Decisions
from quipu.broker.cluster.desk import Desk
from quipu.broker.cluster.link import ControllerLink
from quipu.broker.cluster.machine import Machine
from quipu.broker.cluster.requests import (
    MadeTopic,
    MadeTopics,
    MakeTopics,
    ReservedProducerIds,
    ReserveProducerIds,
    TopicAssignment,
    TopicConfig,
    WantedTopic,
)
from quipu.broker.cluster.telling import ClusterListener
from quipu.broker.quorum.contract import StateMachine
from quipu.broker.topic_views import TopicViews
from quipu.controller import configs, describe, producer_ids, topics
from quipu.controller.decision import Decision
from quipu.controller.records import BrokerRegistered, ClusterCreated, Record
from quipu.controller.state import BrokerState, ClusterState, Topic
from quipu.model.batch_types import CONTROLLER
from quipu.model.errors import Code
from quipu.model.ids import NodeId, ProducerId
from quipu.model.settings import BrokerSettings, TopicSettings, topic_settings
from quipu.model.topics import is_internal
from quipu.runtime.clock import Clock
from quipu.runtime.peer_net import PeerNet
from quipu.runtime.rng import Rng
from quipu.storage.config import LogConfig
from quipu.storage.data_directory import DataDirectory
from quipu.storage.state_log import StateLog

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
MakeQuorum = Callable[[StateMachine], Consensus]

LOG_NAME: Final = "__cluster-0"
LOG_ID: Final = UUID(int=1)  # as in Kafka, where no topic can have it
LOG_CONFIG: Final = LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1)
TIMEOUT_SECONDS: Final = 30.0  # for the controller's answer, where a caller has no other wish


class Cluster:
    """This node's view of the cluster, and the only way to change it."""

    def __init__(
        self,
        settings: BrokerSettings,
        rng: Rng,
        make_quorum: MakeQuorum,
        *,
        net: PeerNet | None = None,
    ) -> None:
        self.node_id = settings.own_id
        self.views = TopicViews()
        self.lease_until = float("inf")  # in the clock's monotonic seconds
        self._static = settings
        self._rng = rng
        self._net = net
        self._machine = Machine(settings, on_leadership=self._on_leadership)
        self._quorum = make_quorum(self._machine)
        self._decisions = Decisions(self._quorum, self._machine.telling)
        self._desk = Desk(self._quorum)
        self._link = ControllerLink(
            self.node_id, self._quorum, self._desk, self._machine.telling, net=net)
        self._producer_ids = range(0)  # reserved for this node and not given away yet
        self._reserving = asyncio.Lock()
        self._desk.on(MakeTopics, self._make_topics)
        self._desk.on(ReserveProducerIds, self._reserve_producer_ids)

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
        """Replay the metadata log, and make this node known under `host` and `port`."""
        log = directory.open_log(LOG_NAME, LOG_CONFIG, topic_id=LOG_ID)
        state_log = StateLog(log, CONTROLLER, clock)
        cluster = cls(settings, rng, lambda machine: Alone(machine, state_log, settings.own_id))
        await cluster.start()
        await cluster.register(host, port)
        return cluster

    async def start(self) -> None:
        """Take part in the quorum."""
        await self._quorum.start()

    async def register(self, host: str, port: int) -> None:
        """Make this node known; at the very first start, give the cluster its id."""
        broker = BrokerState(
            node_id=self.node_id, host=host, port=port, rack=self._static.broker_rack)
        await self._decisions.carry_out(lambda: self._plan_registration(broker))

    def follow(self, listener: ClusterListener) -> None:
        """Tell `listener` of every topic there is, and of every change from now on."""
        for topic in list(self.state.topics.values()):
            listener.on_topic_created(topic)
        self._machine.telling.add(listener)

    def _on_leadership(self, is_leader: bool) -> None:  # noqa: FBT001 a fact, not a flag
        _log.info("this node %s the controller", "is" if is_leader else "is no longer")

    # -- what holds

    @property
    def state(self) -> ClusterState:
        return self._machine.state

    @property
    def settings(self) -> BrokerSettings:
        """This node's settings, the dynamic ones included."""
        return self._machine.settings

    @property
    def is_controller(self) -> bool:
        """Do decisions run here?"""
        return self._quorum.is_leader

    def topic_settings(self, topic: Topic) -> TopicSettings:
        """What applies to `topic`: its own settings on top of the broker's."""
        return topic_settings(topic.configs, self.settings)

    def ladder(self, node_id: int | None = None) -> describe.Ladder:
        """Where a broker's settings come from."""
        return describe.ladder(
            self.state, self.node_id if node_id is None else node_id, self._static)

    # -- changes that any node may ask for

    async def create_topics(
        self, wanted: Sequence[topics.NewTopic], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        if self.is_controller:
            return await self._decisions.carry_out(
                lambda: topics.create_topics(self.state, wanted, self.settings, self._rng.uuid),
                validate_only=validate_only)
        made = await self._link.ask(
            MakeTopics(topics=[_wanted_topic(topic) for topic in wanted],
                       validate_only=validate_only),
            MadeTopics, timeout_seconds=TIMEOUT_SECONDS)
        return [self._topic_answer(topic) for topic in made.topics]

    async def ensure_internal_topic(
        self, name: str, partitions: int, overrides: Sequence[tuple[str, str]] = ()
    ) -> Topic:
        """The cluster's own topic `name`; created if it is not there yet."""
        assert is_internal(name), name
        if name not in self.state.topics:
            wanted = topics.NewTopic(name, partitions, configs=overrides)
            await self._link.ask(MakeTopics(topics=[_wanted_topic(wanted)], is_internal=True),
                                 MadeTopics, timeout_seconds=TIMEOUT_SECONDS)
        return self.state.topics[name]

    async def next_producer_id(self) -> ProducerId:
        """An id that no producer has, or will be given again."""
        if not self._producer_ids:
            async with self._reserving:
                if not self._producer_ids:  # reserved while this one waited its turn
                    await self._fetch_producer_ids()
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(producer_id)

    async def _fetch_producer_ids(self) -> None:
        block = await self._link.ask(ReserveProducerIds(node_id=self.node_id), ReservedProducerIds,
                                     timeout_seconds=TIMEOUT_SECONDS)
        self._producer_ids = range(block.start, block.end)  # C1

    # -- changes that only the controller carries out; their handlers run there

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID]]
    ) -> list[topics.TopicAnswer]:
        return await self._decisions.carry_out(
            lambda: topics.delete_topics(self.state, wanted, self.settings))

    async def create_partitions(
        self, wanted: Sequence[topics.NewPartitions], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        return await self._decisions.carry_out(
            lambda: topics.create_partitions(self.state, wanted), validate_only=validate_only)

    async def alter_configs(
        self, alterations: Sequence[configs.Alteration], *, validate_only: bool = False
    ) -> list[configs.AlterAnswer]:
        return await self._decisions.carry_out(
            lambda: configs.alter(self.state, alterations, self._static),
            validate_only=validate_only)

    # -- what the controller does for other nodes

    async def _make_topics(self, sender: NodeId, request: MakeTopics) -> MadeTopics:
        del sender
        wanted = [_new_topic(topic) for topic in request.topics]
        if request.is_internal:
            await self._decisions.carry_out(lambda: self._plan_internal(wanted))
            return MadeTopics()
        answers = await self.create_topics(wanted, validate_only=request.validate_only)
        return MadeTopics(topics=[
            MadeTopic(name=answer.name or "", topic_id=answer.topic_id, error_code=answer.code,
                      error_message=answer.message)
            for answer in answers])

    async def _reserve_producer_ids(
        self, sender: NodeId, request: ReserveProducerIds
    ) -> ReservedProducerIds:
        del sender
        (block,) = await self._decisions.carry_out(
            lambda: producer_ids.reserve(self.state, NodeId(request.node_id)))
        return ReservedProducerIds(start=block.start, end=block.stop)

    def _topic_answer(self, made: MadeTopic) -> topics.TopicAnswer:
        return topics.TopicAnswer(
            made.name, made.topic_id, Code(made.error_code), made.error_message,
            self.state.topics_by_id.get(made.topic_id))

    # -- decisions of this node about itself

    def _plan_registration(self, broker: BrokerState) -> Decision[None]:
        records: list[Record] = []
        if not self.state.cluster_id:
            cluster_id = base64.urlsafe_b64encode(self._rng.uuid().bytes).decode().rstrip("=")
            records.append(ClusterCreated(cluster_id=cluster_id))
        if self.state.brokers.get(broker.node_id) != broker:
            records.append(BrokerRegistered(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack))
        return Decision(records, [])

    def _plan_internal(self, wanted: Sequence[topics.NewTopic]) -> Decision[None]:
        missing = [topic for topic in wanted if topic.name not in self.state.topics]
        return Decision([
            topics.plan_topic(self.state, topic, self.settings, self._rng.uuid)
            for topic in missing], [])


def _wanted_topic(topic: topics.NewTopic) -> WantedTopic:
    return WantedTopic(
        name=topic.name, partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[TopicAssignment(partition=partition, node_ids=list(nodes))
                     for partition, nodes in topic.assignments],
        configs=[TopicConfig(name=name, value=value) for name, value in topic.configs])


def _new_topic(topic: WantedTopic) -> topics.NewTopic:
    return topics.NewTopic(
        topic.name, topic.partition_count, topic.replication_factor,
        [(item.partition, item.node_ids) for item in topic.assignments],
        [(config.name, config.value) for config in topic.configs])
