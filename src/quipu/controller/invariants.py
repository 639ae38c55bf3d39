"""What must hold of the state after each record, checked by what the record touches.

The cost of a check is bounded by the record: its members, runs or listeners, and the first and the
last partition of the topic; never all topics, nor all partitions.  So it stays on in production.

Not here: whether a record may be applied (record_preconditions.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, assert_never
from uuid import UUID

from quipu.controller.conversions import added_count
from quipu.controller.placement import (
    ChainPlacement,
    DisklessPlacement,
    LegacyPlacement,
    acting_leader,
    chains_of,
    elected,
)
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
from quipu.controller.topic_state import PartitionState
from quipu.model.ids import NO_NODE, NodeId

if TYPE_CHECKING:
    from quipu.controller.state import ClusterState


class Counters(NamedTuple):
    """The numbers of a state: the first four only grow, the others count what exists."""

    next_epoch: int
    next_version: int
    next_producer_id: int
    names_version: int
    topic_count: int
    partition_count: int

    @classmethod
    def of(cls, state: "ClusterState") -> "Counters":
        return cls(state.next_epoch, state.next_version, state.next_producer_id,
                   state.names_version, len(state.topics), state.partition_count)


def check_applied(state: "ClusterState", record: Record, before: Counters) -> None:
    """Assert what must hold of `state`, to which `record` has just been applied."""
    after = Counters.of(state)
    assert after.next_epoch >= before.next_epoch, (before, after, record)  # controller.S6
    assert after.next_version >= before.next_version, (before, after, record)  # controller.S6
    assert after.next_producer_id >= before.next_producer_id, (before, after)  # controller.S4
    assert after.names_version >= before.names_version, (before, after, record)
    assert len(state.topics) == len(state.topics_by_id), record  # controller.S2
    assert state.partition_count >= len(state.topics), record  # controller.S3
    _check_counts(record, before, after)
    match record:
        case TopicCreated() | PartitionsAdded():
            _check_topic(state, record.topic_id)
        case PartitionsMoved():
            _check_topic(state, record.topic_id, record.partitions[:1])
        case PartitionDetached():
            _check_topic(state, record.topic_id, [record.partition])
        case TopicDeleted():
            assert record.topic_id not in state.topics_by_id, record
        case ConfigChanged():
            topic = state.topics.get(record.resource_name)
            if topic is not None:
                _check_topic(state, topic.topic_id)
        case BrokerRegistered() | BrokerFencingChanged() | BrokerUnregistered():
            _check_broker(state, record)
        case ChainChanged() | DerivedChainChanged():
            _check_chain(state, record.name)
        case ChainRemoved():
            assert record.name not in state.chains, record
        case ProducerIdsReserved():
            assert state.next_producer_id == record.next_producer_id, record  # controller.S4
        case ClusterCreated():
            assert state.cluster_id == record.cluster_id, record
        case NumbersUsed():
            assert state.next_epoch >= record.next_epoch, record
            assert state.next_version >= record.next_version, record
        case _:
            assert_never(record)


def _check_counts(record: Record, before: Counters, after: Counters) -> None:
    """Topics and partitions are counted, and only three types of records change their number."""
    topics, partitions = 0, 0
    match record:
        case TopicCreated():
            topics, partitions = 1, added_count(record)
            assert after.names_version == before.names_version + 1, record
        case PartitionsAdded():
            partitions = added_count(record)
        case TopicDeleted():
            assert after.names_version == before.names_version + 1, record
            assert after.topic_count == before.topic_count - 1, (before, after, record)
            assert after.partition_count < before.partition_count, (before, after, record)
            return
        case _:
            assert after.names_version == before.names_version, record
    assert after.topic_count == before.topic_count + topics, (before, after, record)
    assert after.partition_count == before.partition_count + partitions, (before, after, record)


def _check_broker(
    state: "ClusterState", record: BrokerRegistered | BrokerFencingChanged | BrokerUnregistered
) -> None:
    node_id = NodeId(record.node_id)
    broker = state.brokers.get(node_id)
    match record:
        case BrokerUnregistered():
            assert broker is None, record
            assert not state.chain_index.with_node(node_id), record  # controller.S7
            assert str(node_id) not in state.broker_configs, record
        case BrokerRegistered():
            assert broker is not None, record
            assert broker.node_id == node_id, record
            assert broker.incarnation == record.incarnation, record
            assert broker.epoch < state.next_version, record  # controller.S6
        case BrokerFencingChanged():
            assert broker is not None, record
            assert broker.fenced == record.fenced, record
            assert broker.stopping == record.stopping, record
            assert broker.fenced or not broker.given_up, record  # controller.K1
        case _:
            assert_never(record)


def _check_topic(
    state: "ClusterState", topic_id: UUID, changed: Sequence[int] = ()
) -> None:
    """Check a topic, its first and its last partition, and those of `changed`."""
    topic = state.topics_by_id[topic_id]
    assert state.topics[topic.name] is topic, topic.name  # controller.S2
    assert topic.topic_id == topic_id, topic.name  # controller.S2
    assert topic.partitions, topic.name  # controller.S3
    first, last = topic.partitions[0], topic.partitions[-1]
    is_diskless = isinstance(first.placement, DisklessPlacement)
    assert state.is_diskless(topic_id) == is_diskless, topic.name
    _check_partition(state, (topic_id, 0), first)
    if last is not first:
        _check_partition(state, (topic_id, len(topic.partitions) - 1), last)
    for index in changed:
        partition = topic.partitions[index]
        _check_partition(state, (topic_id, index), partition)
        assert state.is_detached((topic_id, index)) == (partition.own_chain is not None), index


def _check_partition(
    state: "ClusterState", key: tuple[UUID, int], partition: PartitionState
) -> None:
    placement, replica_set = partition.placement, partition.replica_set
    assert partition.leader_epoch == replica_set.epoch, partition
    assert partition.partition_epoch == replica_set.version, partition
    assert partition.leader_epoch < state.next_epoch, partition  # controller.S6
    assert partition.partition_epoch < state.next_version, partition  # controller.S6
    assert replica_set.epoch >= placement.epoch, partition  # controller.P1
    assert replica_set.version >= placement.version, partition
    match placement:
        case ChainPlacement():
            chain = placement.own_chain or state.chains[placement.chain]  # controller.P3
            assert partition.leader == state.leader_of(chain), partition  # controller.P2
            assert partition.leader in (NO_NODE, replica_set.head), partition
            assert replica_set.epoch >= chain.epoch, partition  # controller.P1
            for name in chains_of(placement):
                assert state.chain_index.is_topic_on(name, key[0]), (name, key)
        case LegacyPlacement():
            assert partition.leader == replica_set.head, partition
            assert partition.leader == placement.leader, partition
        case DisklessPlacement():
            assert placement.leader in placement.replicas, partition
            up = (placement.leader,) if state.is_up(placement.leader) else tuple(state.up())
            assert elected(placement, up) == placement, partition  # controller.D3
            assert partition.leader == acting_leader(placement, *key, up), partition
            assert partition.leader_epoch == placement.epoch, partition  # controller.D2
            assert partition.isr == partition.replicas, partition  # controller.D4
        case _:
            assert_never(placement)


def _check_chain(state: "ClusterState", name: str) -> None:
    chain = state.chains[name]
    assert chain.name == name, chain
    assert chain.serving, chain  # model.H2
    assert chain.epoch < state.next_epoch, chain  # controller.S6
    assert chain.version < state.next_version, chain
    for node_id in chain.nodes:  # controller.S7
        assert node_id in state.brokers, chain
        assert chain in state.chain_index.with_node(node_id), chain
        assert chain.is_derived or state.chain_of(node_id) is chain, chain
    assert sorted(state.chain_index.preferred(name)) == sorted(chain.nodes), chain  # controller.S8
