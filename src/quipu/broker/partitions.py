"""All partitions that this node is a replica of, found by topic name or by topic id.

Follows the cluster's metadata: it opens a log for every partition that comes here, tells the
driver of its chain who the replicas are, and lets go of partitions that are deleted or have moved
away.  A log that cannot be opened makes its partition fail; the node serves all others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol
from uuid import UUID

from quipu.broker.lease import ALWAYS, Lease
from quipu.broker.partition import Partition
from quipu.broker.partition_parts import Waiter
from quipu.broker.replication import LeadershipListener
from quipu.broker.rules import rules_of
from quipu.controller.state import Place, Topic
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.settings import TopicSettings
from quipu.runtime.wakeups import Wakeups
from quipu.storage.data_directory import DataDirectory
from quipu.storage.log import LogConfig

_DEFAULTS: Final = LogConfig()
_log = logging.getLogger(__name__)

STEP_PARTITIONS: Final = 16  # of a deleted topic, removed in one step
RECOVERY_TURN_SECONDS: Final = 0.01  # of opening logs before others get their turn


class SettingsOf(Protocol):
    """Tells what applies to a topic."""

    def __call__(self, topic: Topic) -> TopicSettings: ...


class Chains(Protocol):
    """The driver of this node's part in the chains; see `replication.Replication`."""

    def configure(self, partition: Partition, replica_set: ReplicaSet) -> None:
        """These are the replicas of `partition` from now on."""
        ...

    def forget(self, partition: Partition) -> None:
        """This node is no replica of `partition` any more."""
        ...

    def watch(self, listener: LeadershipListener) -> None:
        """Tell `listener` which partitions this node leads, and when that changes."""
        ...


class Partitions:
    """The partitions of one node."""

    def __init__(
        self,
        directory: DataDirectory,
        settings_of: SettingsOf,
        chains: Chains,
        *,
        node_id: NodeId,
        producer_expiration_ms: int,
        producer_retry_ms: int = _DEFAULTS.producer_retry_ms,
        producers_max: int = _DEFAULTS.producers_max,
        is_part: Callable[[Place], bool] = lambda _: True,
        lease: Lease = ALWAYS,
    ) -> None:
        """`is_part`: do replica sets speak of this very process?  See `ClusterState.is_part`.

        To be offline, and do nothing, any process may.
        """
        self._directory = directory
        self._settings_of = settings_of
        self._chains = chains
        self._is_part = is_part
        self._node_id = node_id
        self._producer_expiration_ms = producer_expiration_ms
        self._producer_retry_ms = producer_retry_ms
        self._producers_max = producers_max
        self._lease = lease
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._ids: set[bytes] = set()
        self.waiting: dict[Waiter, None] = {}  # fetches, so that a stop can end their waits
        self._wakeups = Wakeups()

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get((topic, partition))

    def find_for_wire(self, topic: str | bytes, partition: int) -> Partition | None:
        """By name, or by id as 16 bytes."""
        if isinstance(topic, str):
            return self._by_name.get((topic, partition))
        return self._by_id.get((topic, partition))

    def knows_id(self, topic_id: bytes) -> bool:
        return topic_id in self._ids

    def watch(self, listener: LeadershipListener) -> None:
        """Tell `listener` which partitions this node leads, and when that changes."""
        self._chains.watch(listener)

    def all(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def finish_soon(self, waiter: Waiter) -> None:
        """End the wait of `waiter` at the end of this turn of the loop, or of a later one."""
        self._wakeups.soon(waiter.finish)

    async def recover(self, topics: Iterable[Topic]) -> None:
        """Open the logs of `topics`, and let the loop turn meanwhile: probes want an answer."""
        loop = asyncio.get_running_loop()
        turned = loop.time()
        for topic in topics:
            config = self._log_config(self._settings_of(topic))
            for index, state in enumerate(topic.partitions):
                if self._node_id not in state.replicas:
                    continue
                name = str(TopicPartition(topic.name, index))
                self._directory.open_log(name, config, topic_id=topic.topic_id, replica=True)
                if loop.time() - turned > RECOVERY_TURN_SECONDS:
                    await asyncio.sleep(0)
                    turned = loop.time()

    # -- what the cluster tells

    def on_topic_created(self, topic: Topic) -> None:
        self.on_partitions_added(topic, 0)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self._ids.add(topic.topic_id.bytes)
        self._follow(topic, first_new)

    def on_replicas_changed(self, topic: Topic) -> None:
        self._follow(topic, 0)

    def on_brokers_changed(self) -> None:
        """Who is up is asked when it matters."""

    def on_config_changed(self, topic: Topic) -> None:
        settings = self._settings_of(topic)
        config, rules = self._log_config(settings), rules_of(settings)
        for index in range(len(topic.partitions)):
            partition = self._by_name.get((topic.name, index))
            if partition is not None:
                partition.configure(config, rules)

    def on_topic_deleted(self, topic: Topic) -> Iterator[None]:
        """Nothing of it is found any more; its logs go in steps, which the caller takes.

        That they go is durable before the first does: a crash in between leaves nothing behind.
        """
        self._ids.discard(topic.topic_id.bytes)
        dropped = self._taken_out(topic, range(len(topic.partitions)))
        if len(dropped) > STEP_PARTITIONS:
            self._directory.begin_removal(topic.topic_id)
        return self._remove_all(topic.topic_id, dropped)

    def _remove_all(self, topic_id: UUID, dropped: list[Partition]) -> Iterator[None]:
        for start in range(0, len(dropped), STEP_PARTITIONS):
            self._remove(dropped[start:start + STEP_PARTITIONS])
            yield
        self._directory.end_removal(topic_id)

    def _follow(self, topic: Topic, first: int) -> None:
        """Have, of the partitions from `first` on, those that this node is a replica of."""
        settings = self._settings_of(topic)
        gone = []
        for index in range(first, len(topic.partitions)):
            state = topic.partitions[index]
            replica_set = state.replica_set
            if self._node_id not in replica_set.replicas:
                gone.append(index)
                continue
            partition = self._by_id.get((topic.topic_id.bytes, index))
            if partition is None:
                partition = self._open(topic, index, settings)
                self._by_name[topic.name, index] = partition
                self._by_id[topic.topic_id.bytes, index] = partition
            if self._is_part(state.place) or (
                    replica_set.state_of(self._node_id) is MemberState.OFFLINE):
                self._chains.configure(partition, replica_set)
        self._drop(topic, gone)

    def _drop(self, topic: Topic, indexes: Iterable[int]) -> None:
        """Let go of partitions, and of their logs: they are elsewhere now."""
        dropped = self._taken_out(topic, indexes)
        if dropped:
            self._remove(dropped)

    def _taken_out(self, topic: Topic, indexes: Iterable[int]) -> list[Partition]:
        """The partitions of `topic` that were here; nobody finds them any more."""
        taken_out = []
        for index in indexes:
            partition = self._by_id.pop((topic.topic_id.bytes, index), None)
            if partition is not None:
                if self._by_name.get((topic.name, index)) is partition:
                    del self._by_name[topic.name, index]
                taken_out.append(partition)
        return taken_out

    def _remove(self, dropped: list[Partition]) -> None:
        for partition in dropped:
            self._chains.forget(partition)
        self._directory.delete_logs(partition.log for partition in dropped)
        for partition in dropped:
            partition.wake()

    def _open(self, topic: Topic, index: int, settings: TopicSettings) -> Partition:
        name = TopicPartition(topic.name, index)
        log = self._directory.open_log(
            str(name), self._log_config(settings), topic_id=topic.topic_id, replica=True)
        partition = Partition(name, topic.topic_id, log, rules_of(settings), self._lease)
        if log.failure is not None:
            _log.error("%s is offline: %s", name, log.failure)
        return partition

    def _log_config(self, settings: TopicSettings) -> LogConfig:
        deletes = "delete" in settings.cleanup_policy
        return LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
            retention_ms=settings.retention_ms if deletes else -1,
            retention_bytes=settings.retention_bytes if deletes else -1,
            flush_messages=settings.flush_messages,
            flush_ms=settings.flush_ms,
            producer_expiration_ms=self._producer_expiration_ms,
            producer_retry_ms=self._producer_retry_ms,
            producers_max=self._producers_max,
        )
