"""The changes that can be requested from the active controller.

Handlers of Kafka requests call it on the controller, after another node has forwarded a client's
request (serving/forwarding.py); requests of nodes come from controller_server.py.  On a node that
is not the controller each call raises NotController.

Not here: registrations and heartbeats of brokers (liveness.py), the rules (controller/).
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from quipu.broker.cluster.decision_queue import DecisionQueue
from quipu.broker.cluster.requests import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    CreateInternalTopicsRequest,
    CreateInternalTopicsResponse,
)
from quipu.broker.cluster.state_machine import MetadataStateMachine
from quipu.broker.error_codes import code_of
from quipu.controller import (
    brokers,
    chains,
    configs,
    elections,
    migration,
    producer_ids,
    reassignment,
    removal,
    topics,
)
from quipu.controller.decision import Decision
from quipu.controller.members import Chain
from quipu.controller.state import ClusterState
from quipu.controller.topic_limits import RequestLimits
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.controller.topic_state import Topic
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.settings import SETTINGS_PAGE, BrokerSettings
from quipu.runtime.rng import Rng

_log = logging.getLogger(__name__)

Wanted = TypeVar("Wanted")
Result = TypeVar("Result")

PART_WEIGHT_MAX: Final = 100  # of the items that are decided and applied at once: about 10 ms
CONFIGURED_WEIGHT: Final = 10  # of an item with settings: the error of an unknown one is slow


def _parts(
    wanted: Sequence[Wanted], weigh: Callable[[Wanted], int]
) -> Iterator[Sequence[Wanted]]:
    """Split `wanted` into parts of at most PART_WEIGHT_MAX; one empty part if it is empty."""
    start = weight = 0
    for index, item in enumerate(wanted):
        weight += weigh(item)
        if weight > PART_WEIGHT_MAX:
            yield wanted[start:index]
            start, weight = index, weigh(item)
    yield wanted[start:]


class Controller:
    """The operations of the controller, for handlers and other nodes."""

    def __init__(
        self, static: BrokerSettings, machine: MetadataStateMachine, decisions: DecisionQueue,
        rng: Rng,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_room` raises while the disk is too full for more topics."""
        self._check_room = check_room
        self._static = static
        self._machine = machine
        self._run = decisions.run
        self._rng = rng
        self.refusals: Counter[str] = Counter()  # by the setting whose limit was exceeded

    @property
    def _state(self) -> ClusterState:
        return self._machine.state

    # -- topics and settings

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False,
        request_id: UUID | None = None,
    ) -> list[topics.TopicResult]:
        """Create topics; with the `request_id` of an earlier attempt, find those that it created.

        See broker.cluster.K4.
        """
        self._check_room()
        limits = RequestLimits(topic.name for topic in wanted)
        return self._counted(await self._in_parts(
            list({topic.name: topic for topic in wanted}.values()),
            lambda part: topics.create_topics(
                self._state, part, self._machine.settings, self._rng.uuid,
                chance=self._rng.random, limits=limits, request_id=request_id),
            lambda topic, error: topics.TopicResult(
                topic.name, code=code_of(error), message=str(error)),
            weigh=lambda topic: CONFIGURED_WEIGHT if topic.configs else 1,
            validate_only=validate_only))

    def _counted(self, results: list[topics.TopicResult]) -> list[topics.TopicResult]:
        self.refusals.update(result.limit for result in results if result.limit)
        return results

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID]]
    ) -> list[topics.TopicResult]:
        """Delete topics; what is named twice has one result, an error."""
        named = Counter(wanted)
        repeated = {each for each, count in named.items() if count > 1}
        limits = RequestLimits(topics.topic_names(self._state, named))
        return await self._in_parts(
            list(named),
            lambda part: topics.delete_topics(
                self._state, part, self._machine.settings, limits=limits, repeated=repeated),
            lambda each, error: topics.TopicResult(*each, code_of(error), str(error)))

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[topics.TopicResult]:
        self._check_room()
        limits = RequestLimits(topic.name for topic in wanted)
        return self._counted(await self._in_parts(
            list({topic.name: topic for topic in wanted}.values()),
            lambda part: topics.create_partitions(
                self._state, part, self._machine.settings, limits=limits),
            lambda topic, error: topics.TopicResult(
                topic.name, code=code_of(error), message=str(error)),
            validate_only=validate_only))

    async def alter_configs(
        self, alterations: Sequence[configs.ConfigAlteration], *, validate_only: bool = False
    ) -> list[configs.AlterConfigsResult]:
        repeated = configs.repeated_resources(alterations)
        if not validate_only and (names := configs.settings_without_effect(alterations)):
            _log.warning("settings that have no effect here were changed: %s (%s says why)",
                         ", ".join(names), SETTINGS_PAGE)
        return await self._in_parts(
            alterations,
            lambda part: configs.alter(self._state, part, self._static, repeated=repeated),
            lambda each, error: configs.AlterConfigsResult(
                each.resource, code_of(error), str(error)),
            weigh=lambda each: CONFIGURED_WEIGHT if each.changes else 1,
            validate_only=validate_only)

    async def _in_parts(
        self,
        wanted: Sequence[Wanted],
        decide: Callable[[Sequence[Wanted]], Decision[Result]],
        failed: Callable[[Wanted, QuipuError], Result],
        *,
        weigh: Callable[[Wanted], int] = lambda _: 1,
        validate_only: bool = False,
    ) -> list[Result]:
        """Make one decision after another, each short enough not to delay other requests.

        If a decision after the first fails, all remaining items get its error as their result;
        earlier decisions stay, and their results are returned.
        """
        results: list[Result] = []
        done = 0
        for part in _parts(wanted, weigh):
            try:
                results += await self._run(
                    partial(decide, part), validate_only=validate_only)
            except QuipuError as error:
                if not results:
                    raise
                return results + [failed(each, error) for each in wanted[done:]]
            done += len(part)
        return results

    # -- brokers and chains

    async def unregister_broker(self, node_id: NodeId) -> None:
        await self._run(lambda: brokers.unregister(self._state, node_id))

    async def create_chain(
        self, name: str, node_names: Sequence[str] = (), *, validate_only: bool = False
    ) -> Chain:
        (chain,) = await self._run(
            lambda: chains.create(self._state, name, node_names), validate_only=validate_only)
        return chain

    async def extend_chain(self, name: str, node_name: str) -> Chain:
        (chain,) = await self._run(lambda: chains.extend(self._state, name, node_name))
        return chain

    async def remove_chain(self, wanted: removal.Removal) -> removal.RemovalProgress:
        """Take the next steps of the removal of a chain, or of a node of one."""
        (progress,) = await self._run(lambda: removal.remove(self._state, wanted))
        return progress

    async def elect_leaders(
        self, kind: elections.ElectionType, wanted: Sequence[TopicPartition] | None
    ) -> list[elections.ElectionResult]:
        return await self._run(lambda: self._elect(kind, wanted))

    async def alter_reassignments(
        self, wanted: Sequence[reassignment.Reassignment], *, factor_may_change: bool = True
    ) -> list[reassignment.ReassignmentResult]:
        return await self._run(
            lambda: reassignment.alter(
                self._state, wanted, factor_may_change=factor_may_change))

    async def list_reassignments(
        self, wanted: Sequence[TopicPartition] | None
    ) -> list[reassignment.Ongoing]:
        return await self._run(
            lambda: Decision([], reassignment.ongoing(self._state, wanted)))

    async def begin_migration(self, name: str, *, validate_only: bool = False) -> Topic:
        """Seal a topic, which becomes diskless as soon as its heads are ready."""
        (topic,) = await self._run(
            lambda: migration.begin(self._state, name, self._static), validate_only=validate_only)
        return topic

    async def cancel_migration(self, name: str) -> Topic:
        """Let a sealed topic take writes again."""
        (topic,) = await self._run(lambda: migration.cancel(self._state, name))
        return topic

    async def migrating_topic(self, name: str) -> Topic:
        """A topic, as the controller knows it."""
        (topic,) = await self._run(
            lambda: Decision([], [migration.find(self._state, name)]))
        return topic

    def _elect(
        self, kind: elections.ElectionType, wanted: Sequence[TopicPartition] | None
    ) -> Decision[elections.ElectionResult]:
        decision = elections.elect(self._state, kind, wanted)
        if kind is elections.ElectionType.UNCLEAN and decision.records:
            _log.warning("unclean election: the new leader may lack acknowledged records")
        return decision

    # -- requests of nodes

    async def create_internal_topics(
        self, sender: NodeId, request: CreateInternalTopicsRequest
    ) -> CreateInternalTopicsResponse:
        """Create the internal topics that do not exist yet."""
        del sender
        wanted = [NewTopic(topic.name, topic.partition_count, configs=[
            (config.name, config.value) for config in topic.configs]) for topic in request.topics]
        if request.is_internal:
            await self._run(lambda: topics.create_internal_topics(
                self._state, wanted, self._machine.settings, self._rng.uuid,
                chance=self._rng.random))
        else:  # from a node of an earlier version, which ignores the results
            await self.create_topics(wanted)
        return CreateInternalTopicsResponse()

    async def allocate_producer_ids(
        self, sender: NodeId, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Reserve a block of producer ids for a node."""
        del request
        (block,) = await self._run(lambda: producer_ids.reserve(self._state, sender))
        return AllocateProducerIdsResponse(start=block.start, end=block.stop)
