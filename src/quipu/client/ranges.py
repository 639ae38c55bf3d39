"""A stretch of one partition."""

from typing import NamedTuple
from uuid import UUID

from quipu.model.ids import ZERO_UUID, TopicPartition


class Range(NamedTuple):
    """The offsets [first, end) of a partition."""

    topic: str
    partition: int
    first: int
    end: int
    topic_id: UUID = ZERO_UUID  # of the topic that the offsets are of; zeros: whoever has the name

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Offsets in the range; fewer records where some were compacted away."""
        return max(self.end - self.first, 0)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.first}, {self.end})"
