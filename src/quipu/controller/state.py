"""What the cluster knows, built from records and from nothing else.

Invariants
    S1  `apply` is the only writer; the same records give the same state on every node
    S2  a topic is found by name and by id, and both finds are the same topic
    S3  partitions are dense: a topic of n partitions has 0 to n-1
    S4  producer ids only grow: an id that was reserved is never reserved again
    S5  applying `records_of(state)` to an empty state gives the same state

Values are frozen and replaced as a whole: whoever holds a `Topic` holds a consistent one, and can
tell by identity whether it has changed.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from quipu.controller.records import (
    BrokerRegistered,
    ClusterCreated,
    ConfigChanged,
    ConfigRecord,
    PartitionRecord,
    PartitionsAdded,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.model.ids import ZERO_UUID, Epoch, NodeId, ProducerId
from quipu.model.topics import clash_key, is_internal


class ResourceType(IntEnum):
    """What a setting belongs to; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


FIRST_PRODUCER_ID: Final = ProducerId(0)
CLUSTER_DEFAULT: Final = ""  # the "broker" whose settings apply to every broker


class PartitionState(NamedTuple):
    """Who holds one partition, and who leads it."""

    leader: NodeId
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader_epoch: Epoch
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic: its partitions by number, and its own settings."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that has registered."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class ClusterState:
    """All of the cluster's metadata.  Read freely; only `apply` writes (S1)."""

    cluster_id: str = ""
    brokers: dict[NodeId, BrokerState] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[UUID, Topic] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # by node id or ""
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    _names_by_clash: dict[str, str] = field(default_factory=dict)

    def find_topic(self, name: str | None, topic_id: UUID = ZERO_UUID) -> Topic | None:
        """The topic with this id if one is given, else with this name."""
        if topic_id != ZERO_UUID:
            return self.topics_by_id.get(topic_id)
        return self.topics.get(name) if name is not None else None

    def find_clash(self, name: str) -> str | None:
        """An existing topic, other than `name`, whose name differs only in '.' and '_'."""
        found = self._names_by_clash.get(clash_key(name))
        return found if found != name else None

    def configs(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """The settings that were given to a topic or a broker itself."""
        if kind is ResourceType.TOPIC:
            return self.topics[name].configs
        return self.broker_configs.get(name, {})

    def apply(self, record: Record) -> None:
        """Take in one change.  It was decided on this very state, so it fits, or it is a bug."""
        match record:
            case ClusterCreated():
                assert not self.cluster_id, "a cluster is created once"
                self.cluster_id = record.cluster_id
            case BrokerRegistered():
                node_id = NodeId(record.node_id)
                self.brokers[node_id] = BrokerState(
                    node_id=node_id, host=record.host, port=record.port, rack=record.rack)
            case TopicCreated():
                self._create(record)
            case TopicDeleted():
                topic = self.topics_by_id.pop(record.topic_id)
                del self.topics[topic.name]
                del self._names_by_clash[clash_key(topic.name)]
            case PartitionsAdded():
                topic = self.topics_by_id[record.topic_id]
                added = tuple(map(_partition, record.partitions))
                self._replace(
                    dataclasses.replace(topic, partitions=topic.partitions + added))
            case ConfigChanged():
                self._configure(record)
            case ProducerIdsReserved():
                assert record.next_producer_id > self.next_producer_id, record  # S4
                self.next_producer_id = ProducerId(record.next_producer_id)
            case _:
                assert_never(record)

    def _create(self, record: TopicCreated) -> None:
        assert record.name not in self.topics, record.name
        assert record.topic_id not in self.topics_by_id, record.topic_id
        assert record.topic_id != ZERO_UUID, record.name
        assert record.partitions, record.name
        self._names_by_clash[clash_key(record.name)] = record.name
        self._replace(topic_of(record))

    def _configure(self, record: ConfigChanged) -> None:
        kind = ResourceType(record.resource_type)
        configs = dict(self.configs(kind, record.resource_name))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if kind is ResourceType.TOPIC:
            self._replace(dataclasses.replace(self.topics[record.resource_name], configs=configs))
        elif configs:
            self.broker_configs[record.resource_name] = configs
        else:
            self.broker_configs.pop(record.resource_name, None)

    def _replace(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic  # S2


def topic_of(record: TopicCreated) -> Topic:
    """The topic that `record` makes."""
    return Topic(
        name=record.name,
        topic_id=record.topic_id,
        partitions=tuple(map(_partition, record.partitions)),
        configs={config.name: config.value for config in record.configs},
    )


def records_of(state: ClusterState) -> Iterator[Record]:
    """Records that build `state` from nothing (S5): a snapshot."""
    if state.cluster_id:
        yield ClusterCreated(cluster_id=state.cluster_id)
    for broker in state.brokers.values():
        yield BrokerRegistered(
            node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
    for topic in state.topics.values():
        yield TopicCreated(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_partition_record(partition) for partition in topic.partitions],
            configs=[ConfigRecord(name=name, value=value) for name, value in topic.configs.items()],
        )
    for resource, configs in state.broker_configs.items():
        for name, value in configs.items():
            yield ConfigChanged(resource_type=ResourceType.BROKER, resource_name=resource,
                                name=name, value=value)
    if state.next_producer_id > FIRST_PRODUCER_ID:
        yield ProducerIdsReserved(node_id=-1, next_producer_id=state.next_producer_id)


def _partition(record: PartitionRecord) -> PartitionState:
    assert record.leader in record.replicas, record
    return PartitionState(
        leader=NodeId(record.leader),
        replicas=tuple(map(NodeId, record.replicas)),
        isr=tuple(map(NodeId, record.isr)),
        leader_epoch=Epoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
    )


def _partition_record(partition: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
