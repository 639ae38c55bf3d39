"""The driver of cluster metadata: decide, make durable, apply, tell, answer; in that order.

    request -> decision (controller) -> metadata log -> ClusterState.apply -> listeners -> answer

Invariants
    M1  decisions are made one at a time, each on the state that holds all earlier ones
    M2  nothing is applied, told or answered before its records are durable
    M3  a decision, once written, is applied even if whoever asked for it has gone
    M4  a producer id is used only after the block that it is in is durable

The metadata log is `__cluster-0`.  Later, Raft will stand between decision and application; the
controller's side will not change.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from quipu.broker.topic_views import TopicViews
from quipu.controller import configs, describe, producer_ids, topics
from quipu.controller.decision import Decision
from quipu.controller.records import (
    BrokerRegistered,
    ClusterCreated,
    ConfigChanged,
    PartitionsAdded,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    TopicDeleted,
    decode_record,
    encode_record,
)
from quipu.controller.state import BrokerState, ClusterState, ResourceType, Topic, records_of
from quipu.model.batch_types import CONTROLLER
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId, ProducerId
from quipu.model.settings import BrokerSettings, TopicSettings, topic_settings
from quipu.model.topics import is_internal
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import spawn
from quipu.storage.config import LogConfig
from quipu.storage.data_directory import DataDirectory
from quipu.storage.state_log import StateLog

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

LOG_NAME: Final = "__cluster-0"
LOG_ID: Final = UUID(int=1)  # as in Kafka, where no topic can have it
LOG_CONFIG: Final = LogConfig(flush_messages=1, retention_ms=-1, retention_bytes=-1)
SNAPSHOT_SIZE: Final = 4 << 20  # bytes of commands after which a snapshot is worth its while


class CommandLog(Protocol):
    """What the driver asks of the metadata log; see `StateLog`."""

    commands_size: int

    def replay(self, apply: Callable[[bytes], None]) -> None: ...
    async def append(self, commands: Sequence[bytes]) -> None: ...
    async def snapshot(self, commands: Iterable[bytes]) -> None: ...


class ClusterListener(Protocol):
    """Someone who acts on changes.  Called after they are durable, in their order."""

    def on_topic_created(self, topic: Topic) -> None: ...
    def on_partitions_added(self, topic: Topic, first_new: int) -> None: ...
    def on_topic_deleted(self, topic: Topic) -> None: ...
    def on_config_changed(self, topic: Topic) -> None: ...


class Cluster:
    """This node's view of the cluster, and the only way to change it."""

    def __init__(self, log: CommandLog, settings: BrokerSettings, rng: Rng) -> None:
        self.state = ClusterState()
        self.node_id = settings.own_id
        self.views = TopicViews()
        self._log = log
        self._static = settings
        self._rng = rng
        self._lock = asyncio.Lock()  # M1
        self._listeners: list[ClusterListener] = []
        self._image_size = 0  # of the last snapshot
        self._producer_ids = range(0)  # reserved for this node and not given away yet
        log.replay(lambda command: self.state.apply(decode_record(command)))
        self.settings = configs.effective_settings(self.state, self.node_id, settings)

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
        cluster = cls(StateLog(log, CONTROLLER, clock), settings, rng)
        await cluster.register(host, port)
        return cluster

    async def register(self, host: str, port: int) -> None:
        """Make this node known; at the very first start, give the cluster its id."""
        broker = BrokerState(
            node_id=self.node_id, host=host, port=port, rack=self._static.broker_rack)
        await self._carry_out(lambda: self._plan_registration(broker))

    def follow(self, listener: ClusterListener) -> None:
        """Tell `listener` of every topic there is, and of every change from now on."""
        for topic in list(self.state.topics.values()):
            listener.on_topic_created(topic)
        self._listeners.append(listener)

    # -- what holds

    def topic_settings(self, topic: Topic) -> TopicSettings:
        """What applies to `topic`: its own settings on top of the broker's."""
        return topic_settings(topic.configs, self.settings)

    def ladder(self, node_id: int | None = None) -> describe.Ladder:
        """Where a broker's settings come from."""
        return describe.ladder(
            self.state, self.node_id if node_id is None else node_id, self._static)

    # -- changes

    async def create_topics(
        self, wanted: Sequence[topics.NewTopic], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        return await self._carry_out(
            lambda: topics.create_topics(self.state, wanted, self.settings, self._rng.uuid),
            validate_only=validate_only)

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID]]
    ) -> list[topics.TopicAnswer]:
        return await self._carry_out(
            lambda: topics.delete_topics(self.state, wanted, self.settings))

    async def create_partitions(
        self, wanted: Sequence[topics.NewPartitions], *, validate_only: bool = False
    ) -> list[topics.TopicAnswer]:
        return await self._carry_out(
            lambda: topics.create_partitions(self.state, wanted), validate_only=validate_only)

    async def alter_configs(
        self, alterations: Sequence[configs.Alteration], *, validate_only: bool = False
    ) -> list[configs.AlterAnswer]:
        return await self._carry_out(
            lambda: configs.alter(self.state, alterations, self._static),
            validate_only=validate_only)

    async def ensure_internal_topic(
        self, name: str, partitions: int, overrides: Sequence[tuple[str, str]] = ()
    ) -> Topic:
        """The cluster's own topic `name`; created if it is not there yet."""
        assert is_internal(name), name
        if name not in self.state.topics:
            wanted = topics.NewTopic(name, partitions, configs=overrides)
            await self._carry_out(lambda: self._plan_internal(wanted))
        return self.state.topics[name]

    async def next_producer_id(self) -> ProducerId:
        """An id that no producer has, or will be given again."""
        while not self._producer_ids:
            await self._carry_out(self._plan_producer_ids)
        producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(producer_id)

    # -- the steps of a change

    async def _carry_out(
        self, decide: Callable[[], Decision[Answer]], *, validate_only: bool = False
    ) -> list[Answer]:
        """Run one decision to its end, whatever becomes of the caller (M3)."""
        task = spawn(self._run(decide, validate_only=validate_only), "cluster decision")
        answers: list[Answer] = await asyncio.shield(task)
        return answers

    async def _run(
        self, decide: Callable[[], Decision[Answer]], *, validate_only: bool
    ) -> list[Answer]:
        async with self._lock:  # M1
            decision = decide()
            if decision.records and not validate_only:
                await self._log.append([encode_record(record) for record in decision.records])
                await self._apply(decision.records)  # M2
                await self._snapshot_if_due()
            return decision.answers

    async def _snapshot_if_due(self) -> None:
        """Keep the log bounded: by the state's own size or SNAPSHOT_SIZE, whichever is more."""
        if self._log.commands_size < max(SNAPSHOT_SIZE, self._image_size):
            return
        image = [encode_record(record) for record in records_of(self.state)]
        self._image_size = sum(map(len, image))
        try:
            await self._log.snapshot(image)
        except QuipuError:  # nothing is lost: the commands are still there
            _log.exception("no snapshot of the metadata could be written")

    async def _apply(self, records: Sequence[Record]) -> None:
        """Apply what is durable, all of it; then tell the listeners."""
        changes = [self._apply_one(record) for record in records]
        self.settings = configs.effective_settings(self.state, self.node_id, self._static)
        for change in changes:
            for listener in self._listeners:
                try:
                    self._tell(listener, change)
                except Exception:  # noqa: BLE001 state and log agree; others must hear of it too
                    _log.exception("a listener failed on %s", type(change.record).__name__)
            await asyncio.sleep(0)  # opening a thousand topics' logs must not stall the node

    def _apply_one(self, record: Record) -> "_Change":
        topic_id = getattr(record, "topic_id", None)
        before = self.state.topics_by_id.get(topic_id) if topic_id is not None else None
        if isinstance(record, ProducerIdsReserved) and record.node_id == self.node_id:
            self._producer_ids = range(self.state.next_producer_id, record.next_producer_id)  # M4
        self.state.apply(record)
        after = self.state.topics_by_id.get(topic_id) if topic_id is not None else None
        return _Change(record, before, after)

    def _tell(self, listener: ClusterListener, change: "_Change") -> None:
        match change:
            case _Change(TopicCreated(), _, Topic() as topic):
                listener.on_topic_created(topic)
            case _Change(PartitionsAdded(), Topic() as before, Topic() as topic):
                listener.on_partitions_added(topic, len(before.partitions))
            case _Change(TopicDeleted(), Topic() as topic, _):
                listener.on_topic_deleted(topic)
            case _Change(ConfigChanged() as record, _, _):
                for topic in self._affected(record):
                    listener.on_config_changed(topic)

    def _affected(self, record: ConfigChanged) -> list[Topic]:
        """Topics to which something else applies now: a broker's settings are their defaults."""
        if record.resource_type == ResourceType.TOPIC:
            return [self.state.topics[record.resource_name]]
        return list(self.state.topics.values())

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

    def _plan_internal(self, wanted: topics.NewTopic) -> Decision[None]:
        if wanted.name in self.state.topics:  # created while this one waited its turn
            return Decision([], [])
        return Decision(
            [topics.plan_topic(self.state, wanted, self.settings, self._rng.uuid)], [])

    def _plan_producer_ids(self) -> Decision[range]:
        if self._producer_ids:  # reserved while this one waited its turn
            return Decision([], [])
        return producer_ids.reserve(self.state, self.node_id)


class _Change(NamedTuple):
    """One record that was applied, with its topic before and after."""

    record: Record
    before: Topic | None
    after: Topic | None
