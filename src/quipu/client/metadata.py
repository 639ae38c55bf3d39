"""What a cluster tells of itself: brokers, topics, who leads which partition.  Plain data."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from quipu.model.errors import Code
from quipu.model.ids import TopicPartition
from quipu.model.settings_types import Address
from quipu.wire.messages.k03_metadata import MetadataResponse, MetadataResponseTopic


class Leader(NamedTuple):
    """Who leads a partition; node -1 for nobody."""

    node_id: int
    epoch: int


class Topic(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: UUID  # of zeros where the broker tells none
    partitions: Mapping[int, Leader]
    is_internal: bool


class Metadata(NamedTuple):
    """See above."""

    brokers: Mapping[int, Address]
    topics: Mapping[str, Topic]
    errors: Mapping[str, int]  # topics that were asked for, and why they are not told

    def leader(self, partition: TopicPartition) -> Leader | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)


def from_answer(answer: MetadataResponse) -> Metadata:
    """What the answer says; partitions of a topic with an error are not told."""
    named = [topic for topic in answer.topics if topic.name is not None]
    return Metadata(
        brokers={each.node_id: Address(each.host, each.port) for each in answer.brokers},
        topics={topic.name or "": _topic(topic) for topic in named if not topic.error_code},
        errors={topic.name or "": topic.error_code for topic in named if topic.error_code},
    )


def _topic(topic: MetadataResponseTopic) -> Topic:
    leaders = {
        each.partition_index: Leader(
            -1 if each.error_code == Code.LEADER_NOT_AVAILABLE else each.leader_id,
            each.leader_epoch)
        for each in topic.partitions
    }
    return Topic(topic.name or "", topic.topic_id, dict(sorted(leaders.items())), topic.is_internal)
