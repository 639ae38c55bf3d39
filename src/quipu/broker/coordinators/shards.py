"""All shards of one internal topic on this node: one per partition that it leads.

A key belongs to one partition of the topic, and the leader of that partition is its coordinator.
The topic is created when a coordinator is first looked up.

Invariants
    broker.coordinators.L1  a shard exists from the moment when this node begins to lead its
                            partition until it stops leading; if it leads again, that is another
                            shard, which reads the log again
    broker.coordinators.L2  a node whose lease has ended serves no shard: another node may lead
                            already
    broker.coordinators.L3  a replica that does not lead drops the commands that the leader has
                            replaced by a snapshot, or by records

Not here: what one shard does (shard.py), what its state means (groups/).
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from quipu.broker.coordinators.command_log import (
    PartitionCommandLog,
    take_all_steps,
    trim_steps,
)
from quipu.broker.coordinators.command_writer import CommandLog
from quipu.broker.coordinators.keys import partition_of_key
from quipu.broker.coordinators.record_log import PartitionRecordLog, trim_commands
from quipu.broker.coordinators.shard import CoordinatorShard
from quipu.model.batch_types import BatchType
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.partition_log import PartitionLog
from quipu.runtime.clock import Clock

if TYPE_CHECKING:  # it holds the coordinators too
    from quipu.broker.serving.context import Broker

_log = logging.getLogger(__name__)

LOAD_SECONDS_MAX: Final = 1.0  # that FindCoordinator and JoinGroup wait for a load
# Retention removes nothing of the topic: snapshots or compaction keep it bounded.  It can be
# written while one replica serves: consumers need the coordinator to read what is left of a chain.
LOG_SETTINGS: Final = (("cleanup.policy", "compact"), ("min.insync.replicas", "1"))


class CoordinatorTopic(NamedTuple):
    """A topic whose partitions keep state machines."""

    name: str
    partition_count: int  # of a new one
    batch_type: BatchType  # of its commands: clients do not see them
    is_keyed: bool = False  # has records with keys, which clients see, instead of commands

    def open(self, partition: PartitionLog, clock: Clock) -> CommandLog[Any]:
        """The log of a shard."""
        kind = PartitionRecordLog if self.is_keyed else PartitionCommandLog
        return kind(partition, self.batch_type, clock)

    def trim_steps(self, partition: PartitionLog, clock: Clock) -> Iterator[None]:
        """Drop what the leader has replaced, on a replica that does not lead."""
        if self.is_keyed:
            return trim_commands(partition, self.batch_type)
        return trim_steps(partition, self.batch_type, clock)


class ServedShard(Protocol):
    """The shard of a coordinator, such as `groups.shard.GroupShard`."""

    core: CoordinatorShard[Any]

    def end(self, code: Code) -> None:
        """End all waiting requests with `code`, and serve no more."""
        ...

    def close(self) -> None:
        """End with NOT_COORDINATOR, and write nothing any more."""
        ...


ShardT = TypeVar("ShardT", bound=ServedShard)
OpenLog = Callable[[PartitionLog], CommandLog[Any]]


class CoordinatorEndpoint(NamedTuple):
    """The node that coordinates a key."""

    node_id: NodeId
    host: str
    port: int


class _Led(NamedTuple, Generic[ShardT]):
    partition: PartitionLog
    shard: ShardT


class CoordinatorShards(Generic[ShardT]):
    """The shards of the partitions that this node leads; finds the coordinators of all keys."""

    def __init__(
        self,
        broker: "Broker",
        topic: CoordinatorTopic,
        make_shard: Callable[[str, CommandLog[Any]], ShardT],
        open_log: OpenLog | None = None,
    ) -> None:
        """`make_shard` is given the partition's name and its log; `open_log` is for tests."""
        self._broker = broker
        self._topic = topic
        self._make_shard = make_shard
        self._open_log = open_log or (lambda partition: topic.open(partition, broker.clock))
        self._led: dict[int, _Led[ShardT]] = {}  # by partition
        self._is_stopped = False

    # -- life

    async def loaded(self) -> None:
        """Return when the load of every shard has succeeded or failed."""
        for led in list(self._led.values()):
            await led.shard.core.loaded()

    async def stop(self) -> None:
        """End all waiting requests with COORDINATOR_NOT_AVAILABLE, and finish writing."""
        self._is_stopped = True
        for led in list(self._led.values()):
            led.shard.end(Code.COORDINATOR_NOT_AVAILABLE)
        for led in list(self._led.values()):
            await led.shard.core.drained()

    def leading_began(self, partition: PartitionLog) -> None:
        """Load the shard of `partition`, which this node leads from now on."""
        topic, number = partition.topic_partition
        if topic != self._topic.name or self._is_stopped:
            return
        assert number not in self._led, partition.topic_partition  # broker.coordinators.L1
        try:
            shard = self._make_shard(str(partition.topic_partition), self._open_log(partition))
        except QuipuError as error:
            _log.error("%s cannot be read: %s", partition.topic_partition, error)
            return
        self._led[number] = _Led(partition, shard)
        shard.core.start()

    def leading_ended(self, partition: PartitionLog) -> None:
        """Close the shard of `partition`: another node leads it, or will."""
        topic, number = partition.topic_partition
        if topic == self._topic.name and (led := self._led.pop(number, None)) is not None:
            led.shard.close()  # broker.coordinators.L1

    def reload(self, shard: ShardT) -> None:
        """Replace `shard` by another one, which reads the log again."""
        for number, led in list(self._led.items()):
            if led.shard is shard:
                self.leading_ended(led.partition)
                self.leading_began(led.partition)
                assert number not in self._led or self._led[number].shard is not shard

    # -- the shard of a key

    async def leader_of(self, key: str) -> NodeId:
        """The node that coordinates `key`, NO_NODE if none does now; creates a missing topic."""
        topic = await self._broker.cluster.ensure_internal_topic(
            self._topic.name, self._topic.partition_count, LOG_SETTINGS)
        return topic.partitions[partition_of_key(key, len(topic.partitions))].leader

    async def find_coordinator(
        self, key: str, listener: str, *, wait_seconds: float = LOAD_SECONDS_MAX
    ) -> CoordinatorEndpoint | None:
        """The coordinator of `key`, and where clients of `listener` reach it.

        None if there is none now, or clients cannot reach it.  Creates the topic if it is missing.
        """
        broker = self._broker
        topic = await broker.cluster.ensure_internal_topic(
            self._topic.name, self._topic.partition_count, LOG_SETTINGS)
        number = partition_of_key(key, len(topic.partitions))
        leader = topic.partitions[number].leader
        known = broker.cluster.state.brokers.get(leader)
        there = None if known is None else known.endpoint(listener)
        if leader == NO_NODE or there is None:
            return None
        if leader == broker.node_id:
            led = self._led.get(number)
            if self._is_stopped or (led is not None and not led.partition.has_lease):
                return None
            if led is not None and wait_seconds > 0:
                await led.shard.core.loaded(wait_seconds)
        return CoordinatorEndpoint(leader, there.host, there.port)

    def shard_of(self, key: str) -> tuple[ShardT | None, Code]:
        """The shard that serves `key`, or the error code (broker.coordinators.L2)."""
        if self._is_stopped:
            return None, Code.COORDINATOR_NOT_AVAILABLE
        led = self._find(key)
        if led is None or not led.partition.has_lease:
            return None, Code.NOT_COORDINATOR
        if led.shard.core.unavailable is not Code.NONE:
            return None, led.shard.core.unavailable
        return led.shard, Code.NONE

    async def shard_loaded(self, key: str) -> tuple[ShardT | None, Code]:
        """As `shard_of`; waits up to LOAD_SECONDS_MAX for a shard that is loading."""
        shard, code = self.shard_of(key)
        if code is Code.COORDINATOR_LOAD_IN_PROGRESS and (led := self._find(key)) is not None:
            await led.shard.core.loaded(LOAD_SECONDS_MAX)
            shard, code = self.shard_of(key)
        return shard, code

    def _find(self, key: str) -> "_Led[ShardT] | None":
        topic = self._broker.cluster.state.topics.get(self._topic.name)
        if topic is None:
            return None
        return self._led.get(partition_of_key(key, len(topic.partitions)))

    @property
    def unavailable(self) -> Code:
        """The error code if a shard that this node leads cannot be served; NONE if all can."""
        if self._is_stopped:
            return Code.COORDINATOR_NOT_AVAILABLE
        codes = {led.shard.core.unavailable for led in self._led.values()} - {Code.NONE}
        return min(codes, default=Code.NONE)

    def __iter__(self) -> Iterator[ShardT]:
        """The shards that are served."""
        return iter([led.shard for led in self._led.values()
                     if led.shard.core.unavailable is Code.NONE and led.partition.has_lease])

    def led(self) -> list[ShardT]:
        """All shards whose partitions this node leads, including those that are loading."""
        return [led.shard for led in self._led.values()]

    # -- followers

    async def trim(self) -> None:
        """Drop commands before the snapshots of other leaders (broker.coordinators.L3)."""
        topic = self._broker.cluster.state.topics.get(self._topic.name)
        for number in range(len(topic.partitions) if topic is not None else 0):
            partition = self._broker.partitions.find(self._topic.name, number)
            if partition is not None and number not in self._led:
                try:
                    await take_all_steps(
                        self._topic.trim_steps(partition, self._broker.clock))
                except QuipuError as error:
                    _log.warning("%s: cannot be trimmed: %s", partition.topic_partition, error)
