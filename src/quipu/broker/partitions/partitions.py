"""All partitions that this node serves, found by topic name or by topic id.

Follows the cluster's metadata: it opens a log for every partition that this node becomes a replica
of, gives the driver of its chain the replica set, and removes partitions that are deleted or have
moved to other nodes.  If a log cannot be opened, its partition has failed; the node serves all
others.  Diskless partitions, which every node serves, are kept apart (broker/diskless).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol
from uuid import UUID

from quipu.broker.diskless.partitions import DisklessPartitions, SettingsOf
from quipu.broker.diskless.services import DisklessServices
from quipu.broker.partitions.lease import ALWAYS, Lease
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication import LeadershipListener
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.batch_rules import rules_of
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import NodeId, TopicPartition
from quipu.model.partition_log import FetchWaiter, PartitionLog
from quipu.model.settings import TopicSettings
from quipu.model.tiered_log import RemoteReads
from quipu.model.tiering_rules import local_limit
from quipu.runtime.wakeups import Wakeups
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.directory_names import directory_name
from quipu.storage.log import LogConfig

_DEFAULTS: Final = LogConfig()
_log = logging.getLogger(__name__)

STEP_PARTITIONS: Final = 16  # of a deleted topic, removed in one step
RECOVERY_TURN_SECONDS: Final = 0.01  # of opening logs before other tasks run


class Chains(Protocol):
    """Replicates the partitions of this node; see `replication.ChainReplication`."""

    def configure(self, partition: ReplicatedPartition, replica_set: ReplicaSet) -> None:
        """Use `replica_set` as the replicas of `partition` from now on."""
        ...

    def forget(self, partition: ReplicatedPartition) -> None:
        """Stop replicating `partition`: this node is not a replica any more."""
        ...

    def limit(self, topic_id: bytes, settings: TopicSettings | None) -> None:
        """Limit the traffic of the throttled replicas of a topic; None: it is deleted."""
        ...

    def watch(self, listener: LeadershipListener) -> None:
        """Notify `listener` of the partitions that this node leads, and when that changes."""
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
        producer_expiration_ms: Callable[[], int],  # may change while the node runs
        producer_retry_ms: int = _DEFAULTS.producer_retry_ms,
        producers_max: int = _DEFAULTS.producers_max,
        is_part: Callable[[PartitionState], bool] = lambda _: True,
        lease: Lease = ALWAYS,
    ) -> None:
        """`is_part`: does the replica set of a partition mean this process of the node?

        See `ClusterState.is_part`.  A set in which this node is offline holds for any process.
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
        self._remote_reads: RemoteReads | None = None
        self._by_name: dict[tuple[str, int], ReplicatedPartition] = {}
        self._by_id: dict[tuple[bytes, int], ReplicatedPartition] = {}
        self._ids: set[bytes] = set()
        self._diskless: DisklessPartitions | None = None
        self._diskless_services: DisklessServices | None = None
        self.waiting: dict[FetchWaiter, None] = {}  # fetches, so that a stop can end their waits
        self._wakeups = Wakeups()

    def __len__(self) -> int:
        return len(self._by_name) + (0 if self._diskless is None else len(self._diskless))

    def find(self, topic: str, partition: int) -> PartitionLog | None:
        return self.find_for_wire(topic, partition)

    def find_for_wire(self, topic: str | bytes, partition: int) -> PartitionLog | None:
        """The partition of a topic that is given by name, or by id as 16 bytes."""
        found: PartitionLog | None = (
            self._by_name.get((topic, partition)) if isinstance(topic, str)
            else self._by_id.get((topic, partition)))
        if found is None and self._diskless is not None:
            found = self._diskless.find_for_wire(topic, partition)
        return found

    def knows_id(self, topic_id: bytes) -> bool:
        return topic_id in self._ids

    def watch(self, listener: LeadershipListener) -> None:
        """Notify `listener` of the partitions that this node leads, and when that changes."""
        self._chains.watch(listener)

    def use_remote_reads(self, remote_reads: RemoteReads) -> None:
        """Read from `remote_reads`, from now on, what only the remote tier has."""
        self._remote_reads = remote_reads
        for partition in self._by_name.values():
            partition.remote_reads = remote_reads
        if self._diskless_services is not None:
            self._diskless_services.remote_reads = remote_reads

    def use_diskless(self, diskless: DisklessPartitions, services: DisklessServices) -> None:
        """Find diskless partitions too, from now on."""
        self._diskless, self._diskless_services = diskless, services
        services.remote_reads = self._remote_reads

    def all(self) -> Iterator[PartitionLog]:
        return iter([*self._by_name.values(), *(
            () if self._diskless is None else self._diskless.all())])

    def replicated(self) -> list[ReplicatedPartition]:
        """The partitions that chains replicate, for the repairs of their logs."""
        return list(self._by_name.values())

    def find_replicated(self, topic_id: bytes, partition: int) -> ReplicatedPartition | None:
        return self._by_id.get((topic_id, partition))

    def log_entries(self) -> set[str]:
        """The names of the directories that hold the partitions' logs."""
        return {partition.log.directory.entry for partition in self._by_name.values()}

    def finish_soon(self, waiter: FetchWaiter) -> None:
        """End the wait of `waiter` at the end of this turn of the loop, or of a later one."""
        self._wakeups.soon(waiter.finish)

    async def recover(self, topics: Iterable[Topic]) -> None:
        """Open the logs of `topics`; other tasks, such as health probes, run meanwhile."""
        loop = asyncio.get_running_loop()
        turned = loop.time()
        for topic in topics:
            if topic.is_diskless:
                self._remove_leftovers(topic)
                continue
            config = self._log_config(self._settings_of(topic))
            for index, state in enumerate(topic.partitions):
                if self._node_id not in state.replicas:
                    continue
                name = str(TopicPartition(topic.name, index))
                self._directory.open_log(name, config, topic_id=topic.topic_id, replica=True)
                if loop.time() - turned > RECOVERY_TURN_SECONDS:
                    await asyncio.sleep(0)
                    turned = loop.time()

    def _remove_leftovers(self, topic: Topic) -> None:
        """Remove the logs of a topic that has become diskless while this node was down."""
        names = [str(TopicPartition(topic.name, index))
                 for index, state in enumerate(topic.partitions) if state.leader_epoch > 0]
        there = set(self._directory.names() if names else ())
        self._directory.delete_logs(
            [self._directory.open_log(name, _DEFAULTS, topic_id=topic.topic_id, replica=True)
             for name in names if directory_name(name, topic.topic_id) in there])

    # -- changes of the metadata

    def on_topic_created(self, topic: Topic) -> None:
        self.on_partitions_added(topic, 0)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self._ids.add(topic.topic_id.bytes)
        self._follow(topic, first_new)

    def on_replicas_changed(self, topic: Topic) -> None:
        self._follow(topic, 0)

    def on_brokers_changed(self) -> None:
        """Do nothing: the state of brokers is read when it is needed."""

    def on_config_changed(self, topic: Topic) -> None:
        settings = self._settings_of(topic)
        config, rules = self._log_config(settings), rules_of(settings)
        self._chains.limit(topic.topic_id.bytes, settings)
        for index in range(len(topic.partitions)):
            partition = self._by_name.get((topic.name, index))
            if partition is not None:
                partition.configure(config, rules)

    def on_topic_deleted(self, topic: Topic) -> Iterator[None]:
        """Forget its partitions at once; the caller takes the steps that remove the logs.

        The removal is noted durably before the first log is removed, so that a start after a crash
        finishes it.
        """
        self._ids.discard(topic.topic_id.bytes)
        self._chains.limit(topic.topic_id.bytes, None)
        dropped = self._take_out(topic, range(len(topic.partitions)))
        if len(dropped) > STEP_PARTITIONS:
            self._directory.begin_removal(topic.topic_id)
        return self._remove_all(topic.topic_id, dropped)

    def _remove_all(self, topic_id: UUID, dropped: list[ReplicatedPartition]) -> Iterator[None]:
        for start in range(0, len(dropped), STEP_PARTITIONS):
            self._remove(dropped[start:start + STEP_PARTITIONS])
            yield
        self._directory.end_removal(topic_id)

    def _follow(self, topic: Topic, first: int) -> None:
        """Open or update the partitions from `first` on; drop those that have moved away."""
        if topic.is_diskless:  # it has nothing on this node, or not any more
            self._drop(topic, range(first, len(topic.partitions)))
            return
        settings = self._settings_of(topic)
        self._chains.limit(topic.topic_id.bytes, settings)
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
            if self._is_part(state) or (
                    replica_set.state_of(self._node_id) is MemberState.OFFLINE):
                self._chains.configure(partition, replica_set)
        self._drop(topic, gone)

    def _drop(self, topic: Topic, indexes: Iterable[int]) -> None:
        """Remove partitions and their logs: other nodes are the replicas now."""
        dropped = self._take_out(topic, indexes)
        if dropped:
            self._remove(dropped)

    def _take_out(self, topic: Topic, indexes: Iterable[int]) -> list[ReplicatedPartition]:
        """Remove partitions from the indexes, and return those that were there."""
        taken_out = []
        for index in indexes:
            partition = self._by_id.pop((topic.topic_id.bytes, index), None)
            if partition is not None:
                if self._by_name.get((topic.name, index)) is partition:
                    del self._by_name[topic.name, index]
                taken_out.append(partition)
        return taken_out

    def _remove(self, dropped: list[ReplicatedPartition]) -> None:
        for partition in dropped:
            self._chains.forget(partition)
        self._directory.delete_logs(partition.log for partition in dropped)
        for partition in dropped:
            partition.wake_fetches()

    def _open(self, topic: Topic, index: int, settings: TopicSettings) -> ReplicatedPartition:
        name = TopicPartition(topic.name, index)
        log = self._directory.open_log(
            str(name), self._log_config(settings), topic_id=topic.topic_id, replica=True)
        partition = ReplicatedPartition(
            name, topic.topic_id, log, rules_of(settings), self._lease,
            remote_reads=self._remote_reads)
        if self._diskless_services is not None:
            partition.note_refused = self._diskless_services.writer.note_refused
        if log.failure is not None:
            _log.error("%s is offline: %s", name, log.failure)
        return partition

    def _log_config(self, settings: TopicSettings) -> LogConfig:
        deletes = "delete" in settings.cleanup_policy
        compacts = "compact" in settings.cleanup_policy
        copies = not settings.remote_log_copy_disable
        return LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=min(settings.segment_ms, settings.max_compaction_lag_ms)
            if compacts else settings.segment_ms,
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
            retention_ms=settings.retention_ms if deletes else -1,
            retention_bytes=settings.retention_bytes if deletes else -1,
            is_tiered=settings.remote_storage_enable,
            is_copied=copies,
            local_retention_ms=local_limit(
                settings.local_retention_ms, settings.retention_ms, copies=copies),
            local_retention_bytes=local_limit(
                settings.local_retention_bytes, settings.retention_bytes, copies=copies),
            flush_messages=settings.flush_messages,
            flush_ms=settings.flush_ms,
            producer_expiration_ms=self._producer_expiration_ms(),
            producer_retry_ms=self._producer_retry_ms,
            producers_max=self._producers_max,
            compacts=compacts,
            delete_retention_ms=settings.delete_retention_ms,
            min_compaction_lag_ms=settings.min_compaction_lag_ms,
            max_compaction_lag_ms=settings.max_compaction_lag_ms,
            min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        )
