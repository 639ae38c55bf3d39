"""What the cluster knows, built from records and from nothing else.

Invariants
    S1  `apply` is the only writer; the same records give the same state on every node
    S2  a topic is found by name and by id, and both finds are the same topic
    S3  partitions are dense: a topic of n partitions has 0 to n-1
    S4  producer ids only grow: an id that was reserved is never reserved again
    S5  applying `records_of(state)` to an empty state gives the same state
    S6  epochs and versions come from two counters of the cluster: what is decided later has
        higher ones, whatever it is about
    S7  a node is a member of one chain at most, and is registered as long as it is one

Values are frozen and replaced as a whole: whoever holds a `Topic` holds a consistent one, and can
tell by identity whether it has changed.  A change of a chain replaces the topics that are on it,
and no others.

Not here: the values, and how a partition follows from its chain (members.py).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Final, assert_never
from uuid import UUID

from quipu.controller.members import (
    NO_CHAIN,
    BrokerState,
    Chain,
    ChainMember,
    PartitionState,
    Place,
    Process,
    Topic,
    broker_record,
    chain_record,
    detached_record,
    own_name,
    partition_at,
    partition_records,
    replica_set_at,
)
from quipu.controller.possible import ImpossibleRecord, why_impossible
from quipu.controller.records import (
    BrokerFencingChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ChainChanged,
    ChainMemberRecord,
    ClusterCreated,
    ConfigChanged,
    ConfigRecord,
    NumbersUsed,
    PartitionDetached,
    PartitionRecord,
    PartitionsAdded,
    PartitionsMoved,
    ProducerIdsReserved,
    Record,
    TopicCreated,
    TopicDeleted,
)
from quipu.model.chains import Member, MemberState, ReplicaSet
from quipu.model.ids import NO_NODE, ZERO_UUID, Epoch, NodeId, ProducerId
from quipu.model.topics import clash_key

__all__ = ["CLUSTER_DEFAULT", "FIRST_PRODUCER_ID", "BrokerState", "Chain", "ChainMember",
           "ClusterState", "Key", "PartitionState", "Place", "ResourceType", "Topic", "records_of"]


Key = tuple[UUID, int]  # a partition: topic id and number


class ResourceType(IntEnum):
    """What a setting belongs to; Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


FIRST_PRODUCER_ID: Final = ProducerId(0)
FIRST_EPOCH: Final = Epoch(1)  # partitions from before there were chains have 0
FIRST_VERSION: Final = 1
CLUSTER_DEFAULT: Final = ""  # the "broker" whose settings apply to every broker


@dataclass(slots=True)
class ClusterState:
    """All of the cluster's metadata.  Read freely; only `apply` writes (S1)."""

    cluster_id: str = ""
    brokers: dict[NodeId, BrokerState] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[UUID, Topic] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)  # by node id or ""
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    next_epoch: Epoch = FIRST_EPOCH  # of chains and partitions
    next_version: int = FIRST_VERSION  # of chains, partitions and registrations of brokers
    partition_count: int = 0  # of all topics
    names_version: int = field(default=0, compare=False)  # grows when a topic comes or goes
    _names_by_clash: dict[str, dict[str, None]] = field(default_factory=dict)
    _chain_by_node: dict[NodeId, str] = field(default_factory=dict)
    _topics_on: dict[str, dict[UUID, None]] = field(default_factory=dict)  # ordered, by chain
    _detached: dict[Key, None] = field(default_factory=dict)  # see detached.py

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
        """The settings that were given to a topic or a broker itself."""
        if kind is ResourceType.TOPIC:
            return self.topics[name].configs
        return self.broker_configs.get(name, {})

    def find_partition(self, key: Key) -> PartitionState | None:
        """A partition by topic id and number."""
        topic = self.topics_by_id.get(key[0])
        return topic.partitions[key[1]] if topic and 0 <= key[1] < len(topic.partitions) else None

    def detached(self) -> list[tuple[Key, Place]]:
        """Partitions that have members of their own, because some replica has failed."""
        return [(key, self.topics_by_id[key[0]].partitions[key[1]].place) for key in self._detached]

    def replica_set(self, topic: str, partition: int) -> ReplicaSet:
        """Who holds a partition, and in which order."""
        return self.topics[topic].partitions[partition].replica_set

    # -- brokers and chains

    def up(self) -> dict[NodeId, Process]:
        """Brokers that are counted on, and the process of each."""
        return {broker.node_id: broker.process for broker in self.brokers.values()
                if not broker.fenced}

    def is_live(self, member: ChainMember) -> bool:
        """Whether the very process that has this part in a chain is up."""
        broker = self.brokers.get(member.node_id)
        return (broker is not None and not broker.fenced
                and broker.incarnation == member.incarnation)

    def is_part(
        self, node_id: NodeId, incarnation: UUID, place: Place | None = None
    ) -> bool:
        """Whether a process may act on the replica sets that name its node; on that at `place`.

        A node that has just started must not: they speak of the process before it, which may have
        written more than what is left.
        """
        own = place.own.find(node_id) if place is not None and place.own is not None else None
        chain = self.chain_of(node_id)
        member = own or (chain.find(node_id) if chain is not None else None)
        return member is not None and member.incarnation == incarnation and self.is_live(member)

    def find_broker(self, name: str) -> BrokerState | None:
        """The broker of this name."""
        return next((broker for broker in self.brokers.values() if broker.name == name), None)

    def chain_of(self, node_id: NodeId) -> Chain | None:
        """The chain that a node is a member of."""
        name = self._chain_by_node.get(node_id)
        return self.chains[name] if name is not None else None

    def leader_of(self, chain: Chain) -> NodeId:
        """Who takes a chain's writes: its head, or nobody (D2)."""
        return chain.head.node_id if self.is_live(chain.head) else NO_NODE

    def topics_on(self, chain: str) -> list[Topic]:
        """Topics of which some partition is on `chain`, or moves to it."""
        return [self.topics_by_id[topic_id] for topic_id in self._topics_on.get(chain, ())]

    def topic_count(self, chain: str) -> int:
        """How many those are."""
        return len(self._topics_on.get(chain, ()))

    def partitions_on(self, chain: str) -> Iterator[tuple[Topic, int]]:
        """Partitions that are served by whoever serves in `chain`; not detached ones."""
        for topic in self.topics_on(chain):
            for index, partition in enumerate(topic.partitions):
                place = partition.place
                if (place.chain == chain and place.own is None) or (
                        place.joined and place.moving_to == chain):
                    yield topic, index

    def chain_mark(self, chain: str) -> int:
        """A number that grows with every change to `chain` and to the partitions that it serves."""
        return max([self.chains[chain].version,
                    *(topic.partitions[index].partition_epoch
                      for topic, index in self.partitions_on(chain))])

    def topic_of(self, record: TopicCreated) -> Topic:
        """The topic that `record` makes."""
        return Topic(
            name=record.name,
            topic_id=record.topic_id,
            partitions=self._partitions(record),
            configs={config.name: config.value for config in record.configs},
        )

    # -- the only writer

    def apply(self, record: Record) -> list[Topic]:
        """Take in one change.  It was decided on this very state, so it fits, or it is a bug.

        Raises `ImpossibleRecord`, and changes nothing, for one about topics that does not fit:
        metadata may be older than this program (possible.py).

        The answer is the topics that were there before and whose partitions are held or led by
        others now.
        """
        why = why_impossible(self, record)
        if why is not None:
            raise ImpossibleRecord(why)
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
                added = self._partitions(record)
                self.partition_count += len(added)
                self._place(dataclasses.replace(topic, partitions=topic.partitions + added))
            case ConfigChanged():
                self._configure(record)
            case ProducerIdsReserved():
                assert record.next_producer_id > self.next_producer_id, record  # S4
                self.next_producer_id = ProducerId(record.next_producer_id)
            case BrokerRegistered() | BrokerFencingChanged() | BrokerUnregistered():
                return self._apply_broker(record)
            case ChainChanged():
                return self._change_chain(record)
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
        self._names_by_clash.setdefault(clash_key(record.name), {})[record.name] = None
        self.names_version += 1
        topic = self.topic_of(record)
        self.partition_count += len(topic.partitions)
        self._place(topic)

    def _delete(self, record: TopicDeleted) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        self.names_version += 1
        self.partition_count -= len(topic.partitions)
        key = clash_key(topic.name)
        del self._names_by_clash[key][topic.name]
        if not self._names_by_clash[key]:
            del self._names_by_clash[key]
        for chain in sorted(topic.chains):
            del self._topics_on[chain][topic.topic_id]
        for index in range(len(topic.partitions)):
            self._detached.pop((topic.topic_id, index), None)

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

    def _apply_broker(
        self, record: BrokerRegistered | BrokerFencingChanged | BrokerUnregistered
    ) -> list[Topic]:
        node_id = NodeId(record.node_id)
        chain = self.chain_of(node_id)
        led = chain is not None and self.leader_of(chain) == node_id
        match record:
            case BrokerRegistered():
                self._use(0, record.epoch)
                self.brokers[node_id] = BrokerState(
                    node_id=node_id, host=record.host, port=record.port, rack=record.rack,
                    name=record.name, peer_host=record.peer_host, peer_port=record.peer_port,
                    incarnation=record.incarnation, epoch=record.epoch, fenced=record.fenced,
                    stopping=record.stopping, lease_ms=record.lease_ms,
                    directory_id=record.directory_id)
            case BrokerFencingChanged():
                self.brokers[node_id] = dataclasses.replace(
                    self.brokers[node_id], fenced=record.fenced, stopping=record.stopping)
            case BrokerUnregistered():
                assert chain is None, record  # S7
                del self.brokers[node_id]
                self.broker_configs.pop(str(node_id), None)
            case _:
                assert_never(record)
        changed = self._derive_detached(node_id)
        if chain is None or (self.leader_of(chain) == node_id) == led:
            return changed
        return self._derive(chain.name)  # those too

    def _change_chain(self, record: ChainChanged) -> list[Topic]:
        chain = Chain(
            name=record.name, epoch=Epoch(record.epoch), version=record.version,
            members=_members(record.members))
        old = self.chains.get(chain.name)
        assert chain.name != NO_CHAIN, record
        assert old is None or chain.version > old.version, (old, chain)
        assert old is None or chain.epoch >= old.epoch, (old, chain)
        assert set(chain.nodes) <= self.brokers.keys(), (chain, self.brokers)  # S7
        for node_id in old.nodes if old is not None else ():
            del self._chain_by_node[node_id]
        for node_id in chain.nodes:
            assert node_id not in self._chain_by_node, (node_id, chain)  # S7
            self._chain_by_node[node_id] = chain.name
        self.chains[chain.name] = chain
        self._topics_on.setdefault(chain.name, {})
        self._use(chain.epoch, chain.version)
        return self._derive(chain.name)

    def _move(self, record: PartitionsMoved) -> list[Topic]:
        topic = self.topics_by_id[record.topic_id]
        place = Place(chain=record.chain, moving_to=record.moving_to, joined=record.joined,
                      epoch=Epoch(record.epoch), version=record.version)
        partitions = list(topic.partitions)
        moved = self._at(place)
        for index in record.partitions:
            before, after = partitions[index], moved
            if before.place.own is not None and before.chain == record.chain:
                after = self._at(place._replace(own=before.place.own, failed=before.place.failed))
            elif before.place.own is not None:
                del self._detached[topic.topic_id, index]
            assert after.partition_epoch > before.partition_epoch, (topic, record)  # D1
            assert after.leader_epoch >= before.leader_epoch, (topic, record)
            partitions[index] = after
        for chain in sorted(topic.chains):
            del self._topics_on[chain][topic.topic_id]
        topic = dataclasses.replace(topic, partitions=tuple(partitions))
        self._place(topic)
        return [topic]

    def _detach(self, record: PartitionDetached) -> list[Topic]:
        topic = self.topics_by_id[record.topic_id]
        key, partitions = (record.topic_id, record.partition), list(topic.partitions)
        before = partitions[record.partition]
        self._use(record.epoch, record.version)
        if record.members:
            own = Chain(
                name=own_name(key), epoch=Epoch(record.epoch), version=record.version,
                members=_members(record.members))
            place = before.place._replace(own=own, failed=tuple(map(NodeId, record.failed)))
            self._detached[key] = None
        else:
            place = before.place._replace(
                own=None, failed=(), epoch=Epoch(record.epoch), version=record.version)
            self._detached.pop(key, None)
        after = partitions[record.partition] = self._at(place)
        if before.place.own is not None:  # a snapshot has the newest of both
            assert after.partition_epoch > before.partition_epoch, (topic, record)  # D1
            assert after.leader_epoch >= before.leader_epoch, (topic, record)
        topic = dataclasses.replace(topic, partitions=tuple(partitions))
        self._replace(topic)
        return [topic]

    # -- what follows from it

    def _derive_detached(self, node_id: NodeId) -> list[Topic]:
        """Bring partitions up to date that have `node_id` for a head of their own."""
        changed: dict[UUID, Topic] = {}
        for (topic_id, index), place in self.detached():
            if place.own is not None and place.own.head.node_id == node_id:
                topic = self.topics_by_id[topic_id]
                partitions = list(topic.partitions)
                partitions[index] = self._at(place)
                changed[topic_id] = dataclasses.replace(topic, partitions=tuple(partitions))
                self._replace(changed[topic_id])
        return list(changed.values())

    def _derive(self, chain: str) -> list[Topic]:
        """Bring every partition of `chain` up to date."""
        known: dict[Place, PartitionState] = {}
        topics = self.topics_on(chain)
        for position, topic in enumerate(topics):
            partitions = []
            for partition in topic.partitions:
                place = partition.place
                if chain not in (place.chain, place.moving_to):
                    partitions.append(partition)
                else:
                    partitions.append(
                        known.get(place) or known.setdefault(place, self._at(place)))
            topics[position] = Topic(  # several times as fast as `replace`
                name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions),
                configs=topic.configs)
            self._replace(topics[position])
        return topics

    def _partitions(self, record: TopicCreated | PartitionsAdded) -> tuple[PartitionState, ...]:
        """The partitions that a record tells of; those at one place are one value."""
        chainless = map(_chainless, record.partitions)
        if not record.runs:
            return tuple(chainless)
        partitions: list[PartitionState] = []
        for run in record.runs:
            assert run.count > 0, record
            if run.chain == NO_CHAIN:
                partitions.extend(islice(chainless, run.count))
            else:
                place = Place(run.chain, run.moving_to, run.joined, Epoch(run.epoch), run.version)
                partitions.extend([self._at(place)] * run.count)
        return tuple(partitions)

    def _at(self, place: Place) -> PartitionState:
        return partition_at(place, replica_set_at(place, self.chains),
                            self.leader_of(place.own or self.chains[place.chain]))

    def _place(self, topic: Topic) -> None:
        """Keep a topic that is new, or has partitions at other places."""
        self._replace(topic)
        for chain in sorted(topic.chains):
            self._topics_on[chain][topic.topic_id] = None
        for place in dict.fromkeys(partition.place for partition in topic.partitions):
            self._use(place.epoch, place.version)

    def _replace(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic  # S2

    def _use(self, epoch: int, version: int) -> None:
        """S6: numbers that were given are not given again."""
        self.next_epoch = Epoch(max(self.next_epoch, epoch + 1))
        self.next_version = max(self.next_version, version + 1)


def _members(records: Iterable[ChainMemberRecord]) -> tuple[ChainMember, ...]:
    return tuple(
        ChainMember(NodeId(member.node_id), MemberState(member.state), member.incarnation,
                    member.directory_id) for member in records)


def _chainless(record: PartitionRecord) -> PartitionState:
    """A partition from before there were chains: as the record says."""
    assert record.leader in record.isr, record
    replicas, isr = tuple(map(NodeId, record.replicas)), tuple(map(NodeId, record.isr))
    serving = sorted(isr, key=lambda node_id: node_id != record.leader)
    rest = [node_id for node_id in replicas if node_id not in isr]
    members = [*(Member(node_id, MemberState.SERVING) for node_id in serving),
               *(Member(node_id, MemberState.OFFLINE) for node_id in rest)]
    return PartitionState(
        leader=NodeId(record.leader), replicas=replicas, isr=isr,
        leader_epoch=Epoch(record.leader_epoch), partition_epoch=record.partition_epoch,
        place=Place(NO_CHAIN, epoch=Epoch(record.leader_epoch), version=record.partition_epoch),
        replica_set=ReplicaSet(epoch=Epoch(record.leader_epoch), version=record.partition_epoch,
                               members=tuple(members)))


def records_of(state: ClusterState) -> Iterator[Record]:
    """Records that build `state` from nothing (S5): a snapshot."""
    if state.cluster_id:
        yield ClusterCreated(cluster_id=state.cluster_id)
    yield from map(broker_record, state.brokers.values())
    yield from map(chain_record, state.chains.values())
    for topic in state.topics.values():
        partitions, runs = partition_records(topic.partitions)
        yield TopicCreated(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions, runs=runs,
            configs=[ConfigRecord(name=name, value=value) for name, value in topic.configs.items()])
    for key, place in state.detached():
        assert place.own is not None
        yield detached_record(key, place.own, place.failed)
    for resource, configs in state.broker_configs.items():
        for name, value in configs.items():
            yield ConfigChanged(resource_type=ResourceType.BROKER, resource_name=resource,
                                name=name, value=value)
    if state.next_producer_id > FIRST_PRODUCER_ID:
        yield ProducerIdsReserved(node_id=NO_NODE, next_producer_id=state.next_producer_id)
    if (state.next_epoch, state.next_version) != (FIRST_EPOCH, FIRST_VERSION):
        yield NumbersUsed(next_epoch=state.next_epoch, next_version=state.next_version)
