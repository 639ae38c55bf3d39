"""What a scrape of the metrics takes from the parts of a broker: groups, and how far behind.

A scrape lets the loop turn between its pieces, so everything here iterates over copies: groups and
offsets may come and go meanwhile.
"""

from collections.abc import Iterator

from quipu.broker.context import Broker
from quipu.broker.metrics import GroupSample, LagSample


def group_samples(broker: Broker) -> Iterator[GroupSample]:
    """Every group with its state and size."""
    for group in broker.groups.all():
        yield GroupSample(group.group_id, group.state.value, len(group.members))


def lag_samples(broker: Broker) -> Iterator[LagSample]:
    """Every committed offset's distance from the high watermark.

    Records that retention has removed are not counted: nobody can read them any more.
    """
    topics = broker.cluster.state.topics_by_id
    for group_id, entry in list(broker.groups.registry.entries.items()):
        for (topic_id, index), committed in list(entry.offsets.items()):
            topic = topics.get(topic_id)
            partition = broker.partitions.find(topic.name, index) if topic is not None else None
            if topic is None or partition is None or partition.failed is not None:
                continue
            position = max(committed.offset, partition.log.log_start_offset)
            lag = max(partition.high_watermark - position, 0)
            yield LagSample(group_id, topic.name, index, lag)
