"""Brokers, topics and the leaders of partitions, as a Metadata response reports them."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from quipu.model.errors import Code
from quipu.model.ids import TopicPartition
from quipu.model.settings_types import Address
from quipu.wire.messages.k03_metadata import MetadataResponse, MetadataResponseTopic


class LeaderMetadata(NamedTuple):
    """The node that leads a partition, -1 if none does, and its leader epoch."""

    node_id: int
    epoch: int


class TopicMetadata(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: UUID  # zeros if the broker sends none
    partitions: Mapping[int, LeaderMetadata]
    is_internal: bool


class Metadata(NamedTuple):
    """The contents of one Metadata response."""

    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]  # error codes of requested topics

    def leader(self, partition: TopicPartition) -> LeaderMetadata | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)


def from_response(response: MetadataResponse) -> Metadata:
    """The metadata in a response; a topic with an error is only in `errors`."""
    named = [topic for topic in response.topics if topic.name is not None]
    return Metadata(
        brokers={each.node_id: Address(each.host, each.port) for each in response.brokers},
        topics={topic.name or "": _topic(topic) for topic in named if not topic.error_code},
        errors={topic.name or "": topic.error_code for topic in named if topic.error_code},
    )


def _topic(topic: MetadataResponseTopic) -> TopicMetadata:
    leaders = {
        each.partition_index: LeaderMetadata(
            -1 if each.error_code == Code.LEADER_NOT_AVAILABLE else each.leader_id,
            each.leader_epoch)
        for each in topic.partitions
    }
    return TopicMetadata(
        topic.name or "", topic.topic_id, dict(sorted(leaders.items())), topic.is_internal)
