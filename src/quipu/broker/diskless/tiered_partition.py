"""A diskless partition whose old records this node moves to the remote tier."""

from collections.abc import Sequence
from typing import NamedTuple

from quipu.diskless.values import LogKey
from quipu.model.ids import Epoch, Offset
from quipu.model.settings import TopicSettings
from quipu.remote.metadata.segment_metadata import TopicIdPartition


class TieredPartition(NamedTuple):
    """A partition that this node looks after."""

    log: LogKey
    topic: str
    settings: TopicSettings
    lineage: Sequence[tuple[Epoch, Offset]]  # its leader epochs, and where each begins

    @property
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.log.topic_id, self.log.partition, self.topic)
