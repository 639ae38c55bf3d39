"""The records that build a state from nothing: a snapshot of the metadata log."""

from collections.abc import Iterator

from quipu.controller.conversions import (
    broker_record,
    chain_record,
    detached_record,
    partition_records,
)
from quipu.controller.records import (
    ClusterCreated,
    ConfigChanged,
    ConfigRecord,
    NumbersUsed,
    ProducerIdsReserved,
    Record,
    TopicCreated,
)
from quipu.controller.resources import NAMED, named_configs
from quipu.controller.state import (
    FIRST_EPOCH,
    FIRST_PRODUCER_ID,
    FIRST_VERSION,
    ClusterState,
)
from quipu.model.ids import NO_NODE


def records_of(state: ClusterState) -> Iterator[Record]:
    """Records that, applied to an empty state, give `state` (controller.S5)."""
    if state.cluster_id:
        yield ClusterCreated(cluster_id=state.cluster_id)
    yield from map(broker_record, state.brokers.values())
    yield from map(chain_record, state.chains.values())
    for topic in state.topics.values():
        partitions, runs = partition_records(topic.partitions)
        yield TopicCreated(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions, runs=runs,
            configs=[ConfigRecord(name=name, value=value) for name, value in topic.configs.items()])
    for key, placement in state.detached_partitions():
        assert placement.own_chain is not None, placement
        yield detached_record(key, placement.own_chain, placement.failed)
    for kind in NAMED:
        for resource, configs in named_configs(state, kind).items():
            for name, value in configs.items():
                yield ConfigChanged(
                    resource_type=kind, resource_name=resource, name=name, value=value)
    if state.next_producer_id > FIRST_PRODUCER_ID:
        yield ProducerIdsReserved(node_id=NO_NODE, next_producer_id=state.next_producer_id)
    if (state.next_epoch, state.next_version) != (FIRST_EPOCH, FIRST_VERSION):
        yield NumbersUsed(next_epoch=state.next_epoch, next_version=state.next_version)
