"""What a scrape of the metrics takes from the parts of a broker: chains, groups, lags.

A scrape lets the loop turn between its pieces, so everything here iterates over copies: groups and
offsets may come and go meanwhile.
"""

from collections.abc import Iterator

from quipu.broker.context import Broker
from quipu.broker.metrics import ChainSample, GroupSample, LagSample
from quipu.broker.partition import Halted


def chain_samples(broker: Broker) -> Iterator[ChainSample]:
    """This node's part in the chain of each of its partitions."""
    for partition in broker.partitions.all():
        replica_set, chain = partition.replica_set, partition.chain
        if replica_set is None or chain is None:
            continue
        name, core = partition.topic_partition, chain.replica
        yield ChainSample(
            topic=name.topic, partition=name.partition, epoch=replica_set.epoch,
            role="alone" if core is None or partition.is_alone else core.role.value,
            is_alone=partition.is_alone and len(replica_set.members) == 1,
            is_leading=partition.is_leading,
            is_short=partition.is_leading and len(replica_set.serving) < len(replica_set.members),
            is_halted=isinstance(partition.log.failure, Halted), lag=core.lag if core else 0,
            lag_after=core.lag_after if core else 0,
            in_flight_size=core.in_flight_size if core else 0)


def group_samples(broker: Broker) -> Iterator[GroupSample]:
    """Every group with its state and size."""
    for group in broker.groups.all():
        yield GroupSample(group.group_id, group.state.value, len(group.members))


def lag_samples(broker: Broker) -> Iterator[LagSample]:
    """Every committed offset's distance from the high watermark.

    Records that retention has removed are not counted: nobody can read them any more.
    """
    topics = broker.cluster.state.topics_by_id
    for group_id, entry in broker.groups.entries():
        for (topic_id, index), committed in list(entry.offsets.items()):
            topic = topics.get(topic_id)
            partition = broker.partitions.find(topic.name, index) if topic is not None else None
            if topic is None or partition is None or partition.failed is not None:
                continue
            position = max(committed.offset, partition.log.log_start_offset)
            lag = max(partition.high_watermark - position, 0)
            yield LagSample(group_id, topic.name, index, lag)
