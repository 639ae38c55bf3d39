"""A range of offsets of one partition."""

from typing import NamedTuple
from uuid import UUID

from quipu.model.ids import ZERO_UUID, TopicPartition


class Range(NamedTuple):
    """The offsets [first, end) of a partition."""

    topic: str
    partition: int
    first: int
    end: int
    topic_id: UUID = ZERO_UUID  # the topic that the offsets belong to; zeros: any of that name

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets; there are fewer records if some were compacted away."""
        return max(self.end - self.first, 0)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.first}, {self.end})"
