"""Changes to the cluster, as the controller carries them out.

Requests of clients for these are answered on the controller: whichever node they reach passes them
on (broker/envelopes).  A call on another node raises NotController.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from quipu.broker.cluster.decisions import Decisions
from quipu.broker.cluster.liveness import new_cluster_id
from quipu.broker.cluster.machine import Machine
from quipu.broker.cluster.membership import Endpoints
from quipu.broker.cluster.requests import (
    MadeTopics,
    MakeTopics,
    ReservedProducerIds,
    ReserveProducerIds,
    made_topic,
    new_topic,
)
from quipu.controller import (
    brokers,
    chains,
    configs,
    detached,
    elections,
    producer_ids,
    reassignment,
    topics,
)
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import BrokerState, Chain, broker_record
from quipu.controller.records import ClusterCreated, Record
from quipu.controller.state import ClusterState, Key
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.settings import BrokerSettings
from quipu.model.topics import is_internal
from quipu.runtime.rng import Rng

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Answer = TypeVar("Answer")

PART_WEIGHT_MAX: Final = 100  # of what is decided, and applied, in one go: about 10 ms
CONFIGURED_WEIGHT: Final = 10  # of what comes with settings: a misspelled one is slow to explain


def _parts(
    wanted: Sequence[Item], weigh: Callable[[Item], int]
) -> Iterator[Sequence[Item]]:
    """`wanted` in runs of at most PART_WEIGHT_MAX; the one empty run if there is nothing."""
    start = weight = 0
    for index, item in enumerate(wanted):
        weight += weigh(item)
        if weight > PART_WEIGHT_MAX:
            yield wanted[start:index]
            start, weight = index, weigh(item)
    yield wanted[start:]


class Changes:
    """What the controller can be asked to change."""

    def __init__(
        self, static: BrokerSettings, machine: Machine, decisions: Decisions, rng: Rng,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_room` raises while there is no room for more topics."""
        self._check_room = check_room
        self._static = static
        self._machine = machine
        self._carry_out = decisions.carry_out
        self._rng = rng
        self.refusals: Counter[str] = Counter()  # by the limit that forbids what was asked for

    @property
    def _state(self) -> ClusterState:
        return self._machine.state

    # -- topics and settings

    async def create_topics(
        self, wanted: Sequence[topics.NewTopic], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        self._check_room()
        whole = topics.Whole(topic.name for topic in wanted)
        return self._counted(await self._in_parts(
            list({topic.name: topic for topic in wanted}.values()),
            lambda part: topics.create_topics(
                self._state, part, self._machine.settings, self._rng.uuid,
                chance=self._rng.random, whole=whole),
            lambda topic, error: topics.TopicAnswer(
                topic.name, code=error.code, message=str(error)),
            weigh=lambda topic: CONFIGURED_WEIGHT if topic.configs else 1,
            validate_only=validate_only))

    def _counted(self, answers: list[topics.TopicAnswer]) -> list[topics.TopicAnswer]:
        self.refusals.update(answer.limit for answer in answers if answer.limit)
        return answers

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID]]
    ) -> list[topics.TopicAnswer]:
        whole = topics.Whole(topics.topic_names(self._state, wanted))
        return await self._in_parts(
            wanted,
            lambda part: topics.delete_topics(
                self._state, part, self._machine.settings, whole=whole),
            lambda each, error: topics.TopicAnswer(*each, error.code, str(error)))

    async def create_partitions(
        self, wanted: Sequence[topics.NewPartitions], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        self._check_room()
        whole = topics.Whole(topic.name for topic in wanted)
        return self._counted(await self._in_parts(
            list({topic.name: topic for topic in wanted}.values()),
            lambda part: topics.create_partitions(
                self._state, part, self._machine.settings, whole=whole),
            lambda topic, error: topics.TopicAnswer(
                topic.name, code=error.code, message=str(error)),
            validate_only=validate_only))

    async def alter_configs(
        self, alterations: Sequence[configs.Alteration], *, validate_only: bool = False
    ) -> list[configs.AlterAnswer]:
        repeated = configs.repeated_resources(alterations)
        return await self._in_parts(
            alterations,
            lambda part: configs.alter(self._state, part, self._static, repeated=repeated),
            lambda each, error: configs.AlterAnswer(each.resource, error.code, str(error)),
            weigh=lambda each: CONFIGURED_WEIGHT if each.changes else 1,
            validate_only=validate_only)

    async def _in_parts(
        self,
        wanted: Sequence[Item],
        decide: Callable[[Sequence[Item]], Decision[Answer]],
        failed: Callable[[Item, QuipuError], Answer],
        *,
        weigh: Callable[[Item], int] = lambda _: 1,
        validate_only: bool = False,
    ) -> list[Answer]:
        """One decision after another, each short enough not to keep others waiting.

        If it is over before the last, what is left is answered with the reason: what was decided
        holds, and is told.
        """
        answers: list[Answer] = []
        done = 0
        for part in _parts(wanted, weigh):
            try:
                answers += await self._carry_out(
                    partial(decide, part), validate_only=validate_only)
            except QuipuError as error:
                if not answers:
                    raise
                return answers + [failed(each, error) for each in wanted[done:]]
            done += len(part)
        return answers

    # -- brokers and chains

    async def unregister_broker(self, node_id: NodeId) -> None:
        await self._carry_out(lambda: brokers.unregister(self._state, node_id))

    async def create_chain(
        self, name: str, node_names: Sequence[str] = (), *, validate_only: bool = False
    ) -> Chain:
        (chain,) = await self._carry_out(
            lambda: chains.create(self._state, name, node_names), validate_only=validate_only)
        return chain

    async def extend_chain(self, name: str, node_name: str) -> Chain:
        (chain,) = await self._carry_out(lambda: chains.extend(self._state, name, node_name))
        return chain

    async def report_failed(self, node_id: NodeId, failed: AbstractSet[Key]) -> None:
        """These are all partitions whose log has failed at a node."""
        await self._carry_out(lambda: detached.report(self._state, node_id, failed))

    async def elect_leaders(
        self, kind: elections.ElectionType, wanted: Sequence[TopicPartition] | None
    ) -> list[elections.ElectAnswer]:
        return await self._carry_out(lambda: self._elect(kind, wanted))

    async def alter_reassignments(
        self, wanted: Sequence[reassignment.Reassignment], *, factor_may_change: bool = True
    ) -> list[reassignment.ReassignAnswer]:
        return await self._carry_out(
            lambda: reassignment.alter(
                self._state, wanted, factor_may_change=factor_may_change))

    async def list_reassignments(
        self, wanted: Sequence[TopicPartition] | None
    ) -> list[reassignment.Ongoing]:
        return await self._carry_out(
            lambda: Decision([], reassignment.ongoing(self._state, wanted)))

    def _elect(
        self, kind: elections.ElectionType, wanted: Sequence[TopicPartition] | None
    ) -> Decision[elections.ElectAnswer]:
        decision = elections.elect(self._state, kind, wanted)
        if kind is elections.ElectionType.UNCLEAN and decision.records:
            _log.warning("a leader is elected that may lack records which were acknowledged")
        return decision

    # -- what other nodes ask for

    async def make_topics(self, sender: NodeId, request: MakeTopics) -> MadeTopics:
        """Topics that a node needs: those of clients, or the cluster's own."""
        del sender
        wanted = list(map(new_topic, request.topics))
        if request.is_internal:
            await self._carry_out(lambda: self._plan_internal(wanted))
            return MadeTopics()
        answers = await self.create_topics(wanted, validate_only=request.validate_only)
        return MadeTopics(topics=list(map(made_topic, answers)))

    async def reserve_producer_ids(
        self, sender: NodeId, request: ReserveProducerIds
    ) -> ReservedProducerIds:
        """A block of ids for one node."""
        del sender
        (block,) = await self._carry_out(
            lambda: producer_ids.reserve(self._state, NodeId(request.node_id)))
        return ReservedProducerIds(start=block.start, end=block.stop)

    def _plan_internal(self, wanted: Sequence[topics.NewTopic]) -> Decision[None]:
        """The cluster's own topics, and no others, whoever asks."""
        for topic in wanted:
            if not is_internal(topic.name):
                raise RequestError(f"{topic.name[:40]!r} is no topic of the cluster's own",
                                   code=Code.INVALID_TOPIC_EXCEPTION)
        missing = [topic for topic in {topic.name: topic for topic in wanted}.values()
                   if topic.name not in self._state.topics]
        return Decision([
            topics.plan_topic(self._state, topic, self._machine.settings, self._rng.uuid,
                              chance=self._rng.random)
            for topic in missing], [])

    # -- a node that is a cluster of its own

    async def start_alone(self, endpoints: Endpoints, incarnation: UUID) -> int:
        """Register this process, and have its chain; gives the epoch of the registration."""
        (broker,) = await self._carry_out(lambda: self._plan_alone(endpoints, incarnation))
        if self._state.chain_of(broker.node_id) is None:
            await self.make_own_chain()
        return broker.epoch

    async def make_own_chain(self) -> None:
        """The chain that this node's name says it belongs to, with this node alone."""
        await self._carry_out(lambda: chains.bootstrap_alone(
            self._state, self._static.own_id, self._static.chain_name))

    def _plan_alone(self, endpoints: Endpoints, incarnation: UUID) -> Decision[BrokerState]:
        """Registered and counted on at once, with one write: nobody else is there to be asked."""
        settings, state, numbers = self._static, self._state, Numbers(self._state)
        broker = BrokerState(
            node_id=settings.own_id, name=settings.node_name, rack=settings.broker_rack,
            host=endpoints.host, port=endpoints.port, incarnation=incarnation,
            epoch=numbers.version())
        records: list[Record] = []
        if not state.cluster_id:
            records.append(ClusterCreated(cluster_id=new_cluster_id(self._rng)))
        up = {**state.up(), broker.node_id: broker.process}
        return Decision(
            [*records, broker_record(broker), *chains.follow(state, up, numbers)], [broker])
