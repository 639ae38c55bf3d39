"""The metadata of the cluster, built from records and from nothing else.

Invariants
    controller.S1  `apply` is the only writer; the same records give the same state on every node
    controller.S2  a topic is found by name and by id, and both are the same object
    controller.S3  partitions are dense: a topic of n partitions has 0 to n-1
    controller.S4  producer ids only grow: an id that was reserved is never reserved again
    controller.S5  applying `records_of(state)` to an empty state gives the same state
    controller.S6  epochs and versions come from two counters of the cluster: a later decision has
                   higher ones, whatever it changes
    controller.S7, controller.S8  see chain_index.py

Values are frozen and replaced as a whole: a `Topic` that code holds is consistent, and is another
object once the topic has changed.  A change of a chain replaces the topics that are on it, and no
others.

Not here: the values (members.py, topic_state.py), which chains a node is in and which topics are on
them (chain_index.py), how a partition follows from its chain (placement.py), the records of a
snapshot (snapshot.py).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never
from uuid import UUID

from quipu.controller import derived_topics
from quipu.controller.chain_index import ChainIndex
from quipu.controller.conversions import (
    added_count,
    broker_of,
    chain_of,
    moved_placement,
    placements_of,
)
from quipu.controller.derived_topics import partition_at
from quipu.controller.invariants import Counters, check_applied
from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.members import BrokerProcess, BrokerState, Chain, ChainMember
from quipu.controller.placement import (
    ChainPlacement,
    DisklessPlacement,
    LegacyPlacement,
    Placement,
    chains_of,
    is_served_by,
)
from quipu.controller.record_preconditions import UnfitRecord, why_unfit
from quipu.controller.records import (
    BrokerFencingChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ChainChanged,
    ChainRemoved,
    ClusterCreated,
    ConfigChanged,
    DerivedChainChanged,
    NumbersUsed,
    PartitionDetached,
    PartitionsAdded,
    PartitionsMoved,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.controller.resources import ResourceType, named_configs
from quipu.controller.topic_state import PartitionState, Topic, diskless_replicas
from quipu.model.chains import ReplicaSet, member_key
from quipu.model.ids import NO_NODE, ZERO_UUID, Epoch, NodeId, ProducerId
from quipu.model.topics import clash_key

Key = tuple[UUID, int]  # a partition: topic id and number


FIRST_PRODUCER_ID: Final = ProducerId(0)
FIRST_EPOCH: Final = Epoch(1)  # partitions from before there were chains have 0
FIRST_VERSION: Final = 1
CLUSTER_DEFAULT: Final = ""  # the "broker" whose settings apply to every broker


@dataclass(slots=True)
class ClusterState:
    """All of the cluster's metadata.  Read freely; only `apply` writes (controller.S1)."""

    cluster_id: str = ""
    brokers: dict[NodeId, BrokerState] = field(default_factory=dict)
    chain_index: ChainIndex = field(default_factory=ChainIndex)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[UUID, Topic] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # by node id or ""
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # by group id
    client_metrics_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # by name
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    next_epoch: Epoch = FIRST_EPOCH  # of chains and partitions
    next_version: int = FIRST_VERSION  # of chains, partitions and registrations of brokers
    partition_count: int = 0  # of all topics
    names_version: int = field(default=0, compare=False)  # grows when a topic comes or goes
    _names_by_clash: dict[str, dict[str, None]] = field(default_factory=dict)
    _detached: dict[Key, None] = field(default_factory=dict)  # see failed_replicas.py
    _diskless: dict[UUID, None] = field(default_factory=dict)  # topics, see diskless.py
    diskless_load: ReplicaLoad = field(default_factory=ReplicaLoad)  # of all their partitions

    # -- topics and settings

    def find_topic(self, name: str | None, topic_id: UUID = ZERO_UUID) -> Topic | None:
        """The topic with this id if one is given, else with this name."""
        if topic_id != ZERO_UUID:
            return self.topics_by_id.get(topic_id)
        return self.topics.get(name) if name is not None else None

    def find_clash(self, name: str) -> str | None:
        """An existing topic, other than `name`, whose name differs only in '.' and '_'."""
        found = self._names_by_clash.get(clash_key(name), ())
        return next((other for other in found if other != name), None)

    def configs(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """The settings that were given to a resource itself."""
        if kind is ResourceType.TOPIC:
            return self.topics[name].configs
        return named_configs(self, kind).get(name, {})

    def is_detached(self, key: Key) -> bool:
        """Whether a partition has members of its own (see failed_replicas.py)."""
        return key in self._detached

    def find_partition(self, key: Key) -> PartitionState | None:
        """A partition by topic id and number."""
        topic = self.topics_by_id.get(key[0])
        return topic.partitions[key[1]] if topic and 0 <= key[1] < len(topic.partitions) else None

    def detached_partitions(self) -> list[tuple[Key, ChainPlacement]]:
        """Partitions that have members of their own, because some replica has failed."""
        found = []
        for key in self._detached:
            placement = self.topics_by_id[key[0]].partitions[key[1]].placement
            assert isinstance(placement, ChainPlacement), placement
            assert placement.own_chain is not None, placement
            found.append((key, placement))
        return found

    def is_diskless(self, topic_id: UUID) -> bool:
        return topic_id in self._diskless

    def diskless_topics(self) -> list[Topic]:
        """Topics whose records are in object storage alone."""
        return [self.topics_by_id[topic_id] for topic_id in self._diskless]

    def replica_set(self, topic: str, partition: int) -> ReplicaSet:
        """The nodes that hold a partition, in the order of its chain."""
        return self.topics[topic].partitions[partition].replica_set

    # -- brokers and chains

    @property
    def chains(self) -> Mapping[str, Chain]:
        """All chains by name: operators' and derived ones."""
        return self.chain_index.chains

    def up(self) -> dict[NodeId, BrokerProcess]:
        """Brokers that are not fenced, and the process of each."""
        return {broker.node_id: broker.process for broker in self.brokers.values()
                if not broker.fenced}

    def is_up(self, node_id: NodeId) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def is_live(self, member: ChainMember) -> bool:
        """Whether the very process that is this member is up."""
        return (self.is_up(member.node_id)
                and self.brokers[member.node_id].incarnation == member.incarnation)

    def is_part(
        self, node_id: NodeId, incarnation: UUID, partition: PartitionState | None = None
    ) -> bool:
        """Whether a process may act on the replica sets that name its node, or on `partition`'s.

        A process that has just started may not: they name the process before it, which may have
        written more than what is left on the disk.
        """
        member = self.member_of(node_id, partition)
        return member is not None and member.incarnation == incarnation and self.is_live(member)

    def member_of(
        self, node_id: NodeId, partition: PartitionState | None = None
    ) -> ChainMember | None:
        """The member that a node is for `partition`, or in its operator's chain."""
        placement = partition.placement if partition is not None else None
        if isinstance(placement, ChainPlacement):
            held = [self.chains[name] for name in chains_of(placement)
                    if name in self.chains]  # it may be out of date: listeners hear of it later
            if placement.own_chain is not None:
                held.insert(0, placement.own_chain)  # controller.P3
        else:
            chain = self.chain_of(node_id)
            held = [] if chain is None else [chain]
        return next((member for chain in held if (member := chain.find(node_id))), None)

    def find_broker(self, name: str) -> BrokerState | None:
        """The broker of this name."""
        return next((broker for broker in self.brokers.values() if broker.name == name), None)

    def chain_of(self, node_id: NodeId) -> Chain | None:
        """The operator's chain that a node is a member of."""
        return self.chain_index.of_node(node_id)

    def leader_of(self, chain: Chain) -> NodeId:
        """The node that takes a chain's writes: its head, or NO_NODE if that is not up (D2)."""
        return chain.head.node_id if self.is_live(chain.head) else NO_NODE

    def topics_on(self, chain: str) -> list[Topic]:
        """Topics of which some partition is on `chain`, or moves to it."""
        return [self.topics_by_id[topic_id] for topic_id in self.chain_index.topics_on(chain)]

    def topic_count(self, chain: str) -> int:
        """How many topics have some partition on an operator's chain (chain_index.py)."""
        return self.chain_index.topic_count(chain)

    def partitions_on(self, chain: str) -> Iterator[tuple[Topic, int]]:
        """Partitions that the serving members of `chain` serve; not detached ones."""
        for topic in self.topics_on(chain):
            for index, partition in enumerate(topic.partitions):
                if is_served_by(partition.placement, chain):
                    yield topic, index

    def chain_mark(self, chain: str) -> int:
        """A number that grows with every change to `chain` and to the partitions that it serves."""
        return max([self.chains[chain].version,
                    *(topic.partitions[index].partition_epoch
                      for topic, index in self.partitions_on(chain))])

    def topic_of(self, record: TopicCreated, chains: Mapping[str, Chain] | None = None) -> Topic:
        """The topic that `record` makes; `chains`: with those that the same decision makes."""
        return Topic(name=record.name, topic_id=record.topic_id,
                     partitions=self._placed(record, chains=chains),
                     configs={config.name: config.value for config in record.configs})

    # -- the only writer

    def apply(self, record: Record) -> list[Topic]:
        """Apply one record; returns the topics that existed before and whose partitions have other
        replicas or another leader now.

        The record was decided on this very state, so it fits, or that is a bug.  Raises
        `UnfitRecord`, and changes nothing, for a record about topics that does not fit: metadata
        may be older than this program (record_preconditions.py).
        """
        why = why_unfit(self, record)
        if why is not None:
            raise UnfitRecord(why)
        before = Counters.of(self)
        changed = self._apply(record)
        check_applied(self, record, before)
        return changed

    def _apply(self, record: Record) -> list[Topic]:
        match record:
            case ClusterCreated():
                assert not self.cluster_id, "a cluster is created once"
                self.cluster_id = record.cluster_id
            case TopicCreated():
                self._create(record)
            case TopicDeleted():
                self._delete(record)
            case PartitionsAdded():
                topic = self.topics_by_id[record.topic_id]
                added = self._placed(record, len(topic.partitions))
                self.partition_count += len(added)
                self.diskless_load.count_all(diskless_replicas(added))
                self._keep(dataclasses.replace(topic, partitions=topic.partitions + added))
            case ConfigChanged():
                self._configure(record)
            case ProducerIdsReserved():
                assert record.next_producer_id > self.next_producer_id, record  # controller.S4
                self.next_producer_id = ProducerId(record.next_producer_id)
            case BrokerRegistered() | BrokerFencingChanged() | BrokerUnregistered():
                return self._apply_broker(record)
            case ChainChanged() | DerivedChainChanged():
                return self._change_chain(record)
            case ChainRemoved():
                self.chain_index.remove(record.name)
            case PartitionsMoved():
                return self._move(record)
            case PartitionDetached():
                return self._detach(record)
            case NumbersUsed():
                self._use(record.next_epoch - 1, record.next_version - 1)
            case _:
                assert_never(record)
        return []

    def _create(self, record: TopicCreated) -> None:
        assert record.name not in self.topics, record.name  # controller.S2
        assert record.topic_id not in self.topics_by_id, record.topic_id  # controller.S2
        self._names_by_clash.setdefault(clash_key(record.name), {})[record.name] = None
        self.names_version += 1
        topic = self.topic_of(record)
        self.partition_count += len(topic.partitions)
        self.diskless_load.count_all(diskless_replicas(topic.partitions))
        self._keep(topic)

    def _delete(self, record: TopicDeleted) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        assert self.topics[topic.name] is topic, topic.name  # controller.S2
        del self.topics[topic.name]
        self.names_version += 1
        self.partition_count -= len(topic.partitions)
        assert self.partition_count >= len(self.topics), topic.name  # controller.S3
        key = clash_key(topic.name)
        del self._names_by_clash[key][topic.name]
        if not self._names_by_clash[key]:
            del self._names_by_clash[key]
        self.chain_index.leave(topic.topic_id, topic.chains)
        for index in range(len(topic.partitions)):
            self._detached.pop((topic.topic_id, index), None)
        self.diskless_load.count_all(diskless_replicas(topic.partitions), -1)
        self._diskless.pop(topic.topic_id, None)

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
            named_configs(self, kind)[record.resource_name] = configs
        else:
            named_configs(self, kind).pop(record.resource_name, None)
        assert self.configs(kind, record.resource_name).get(record.name) == record.value, record

    def _apply_broker(
        self, record: BrokerRegistered | BrokerFencingChanged | BrokerUnregistered
    ) -> list[Topic]:
        node_id = NodeId(record.node_id)
        chains, was_up = self.chain_index.with_node(node_id), self.is_up(node_id)
        led = {chain.name for chain in chains if self.leader_of(chain) == node_id}
        match record:
            case BrokerRegistered():
                assert node_id >= 0, record
                self._use(0, record.epoch)
                self.brokers[node_id] = broker_of(record)
            case BrokerFencingChanged():
                self.brokers[node_id] = dataclasses.replace(
                    self.brokers[node_id], fenced=record.fenced, stopping=record.stopping,
                    fenced_at_ms=record.fenced_at_ms, given_up=record.given_up)
            case BrokerUnregistered():
                assert not chains, record  # controller.S7
                del self.brokers[node_id]
                self.broker_configs.pop(str(node_id), None)
            case _:
                assert_never(record)
        changed = self._derived(derived_topics.detached_from_chains(self, node_id))
        for chain in chains:
            if (self.leader_of(chain) == node_id) != (chain.name in led):
                changed = [*changed, *self._derived(derived_topics.on_chain(self, chain.name))]
        if self.is_up(node_id) != was_up:
            changed = [*changed, *self._derived(derived_topics.diskless(self))]
        return list({topic.topic_id: topic for topic in changed}.values())

    def _change_chain(self, record: ChainChanged | DerivedChainChanged) -> list[Topic]:
        chain = chain_of(record)
        old = self.chains.get(chain.name)
        assert old is None or chain.version > old.version, (old, chain)
        assert old is None or chain.epoch >= old.epoch, (old, chain)
        assert set(chain.nodes) <= self.brokers.keys(), (chain, self.brokers)  # controller.S7
        self.chain_index.put(chain, chain.order or tuple(sorted(
            chain.nodes, key=lambda node_id: member_key(self.brokers[node_id].name))))
        self._use(chain.epoch, chain.version)
        return self._derived(derived_topics.on_chain(self, chain.name))

    def _move(self, record: PartitionsMoved) -> list[Topic]:
        topic = self.topics_by_id[record.topic_id]
        target = moved_placement(record)
        partitions = list(topic.partitions)
        moved = partition_at(self, target) if isinstance(target, ChainPlacement) else None
        for index in record.partitions:
            before, key = partitions[index], (topic.topic_id, index)
            placement = self._moved(before.placement, target, key)
            after = moved if moved is not None and placement is target else partition_at(
                self, placement, key)
            assert after.partition_epoch > before.partition_epoch, (topic, record)  # controller.P1
            assert after.leader_epoch >= before.leader_epoch, (topic, record)
            for each, number in ((before, -1), (after, 1)):
                self.diskless_load.count_all(diskless_replicas([each]), number)
            partitions[index] = after
        moved_topic = dataclasses.replace(topic, partitions=tuple(partitions))
        if topic.is_diskless:  # on no chain, before and after: the others are not looked at
            self._replace(moved_topic)
            self._use(target.epoch, target.version)
        else:
            self.chain_index.leave(topic.topic_id, topic.chains)
            self._keep(moved_topic)
        return [moved_topic]

    def _moved(
        self, placed: Placement, target: ChainPlacement | DisklessPlacement, key: Key
    ) -> Placement:
        """The placement of a partition that was `placed`, and moves to `target`."""
        if isinstance(target, DisklessPlacement) and target.leader == NO_NODE:
            assert isinstance(placed, DisklessPlacement), placed  # see record_preconditions.py
            stays = placed.leader in target.replicas
            target = target._replace(leader=placed.leader if stays else target.replicas[0])
        match placed:
            case DisklessPlacement():
                return target._replace(epoch=placed.epoch)  # controller.D2
            case ChainPlacement(own_chain=None) | LegacyPlacement():
                return target
            case ChainPlacement():
                assert isinstance(target, ChainPlacement), target  # see record_preconditions.py
                if placed.chain == target.chain:  # it stays detached
                    return target._replace(own_chain=placed.own_chain, failed=placed.failed)
                del self._detached[key]
                return target
            case _:
                assert_never(placed)

    def _detach(self, record: PartitionDetached) -> list[Topic]:
        topic = self.topics_by_id[record.topic_id]
        key, partitions = (record.topic_id, record.partition), list(topic.partitions)
        before = partitions[record.partition]
        placement = before.placement
        assert isinstance(placement, ChainPlacement), record  # see record_preconditions.py
        self._use(record.epoch, record.version)
        if record.members:
            placement = placement._replace(
                own_chain=chain_of(record), failed=tuple(map(NodeId, record.failed)))
            self._detached[key] = None
        else:
            placement = placement._replace(
                own_chain=None, failed=(), epoch=Epoch(record.epoch), version=record.version)
            self._detached.pop(key, None)
        assert placement.chain in self.chains, record
        after = partitions[record.partition] = partition_at(self, placement)
        if before.own_chain is not None:  # a snapshot has the newest of both
            assert after.partition_epoch > before.partition_epoch, (topic, record)  # controller.P1
            assert after.leader_epoch >= before.leader_epoch, (topic, record)
        topic = dataclasses.replace(topic, partitions=tuple(partitions))
        self._replace(topic)
        return [topic]

    # -- derived from placements and chains

    def _derived(self, topics: list[Topic]) -> list[Topic]:
        """Store topics whose replicas or leaders have changed (derived_topics.py)."""
        for topic in topics:
            self._replace(topic)
        return topics

    def _placed(
        self, record: TopicCreated | PartitionsAdded, first: int = 0,
        chains: Mapping[str, Chain] | None = None,
    ) -> tuple[PartitionState, ...]:
        """The partitions that a record makes, from number `first` on.

        Those that are placed alike are one value.
        """
        partitions: list[PartitionState] = []
        known: dict[Placement, PartitionState] = {}
        for placement, count in placements_of(record):
            key = record.topic_id, first + len(partitions)
            if isinstance(placement, ChainPlacement):
                state = known.get(placement) or known.setdefault(
                    placement, partition_at(self, placement, chains=chains))
            else:
                state = partition_at(self, placement, key)
            partitions.extend([state] * count)
        assert len(partitions) == added_count(record), record  # controller.S3
        return tuple(partitions)

    def _keep(self, topic: Topic) -> None:
        """Store a topic that is new, or has partitions that are placed elsewhere now."""
        self._replace(topic)
        self.chain_index.enter(topic.topic_id, topic.chains)
        if topic.is_diskless:
            self._diskless[topic.topic_id] = None
        for placement in dict.fromkeys(partition.placement for partition in topic.partitions):
            self._use(placement.epoch, placement.version)

    def _replace(self, topic: Topic) -> None:
        assert topic.partitions, topic.name  # controller.S3
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic  # controller.S2

    def _use(self, epoch: int, version: int) -> None:
        """Count an epoch and a version as given: no later one is as low (controller.S6)."""
        self.next_epoch = Epoch(max(self.next_epoch, epoch + 1))
        self.next_version = max(self.next_version, version + 1)
