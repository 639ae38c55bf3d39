"""A diskless partition whose old records this node moves to the remote tier."""

from collections.abc import Sequence
from typing import NamedTuple

from quipu.diskless.values import LEADER_EPOCH, LogKey
from quipu.model.ids import Epoch, Offset
from quipu.model.settings import TopicSettings
from quipu.remote.metadata.segment_metadata import TopicIdPartition


class TieredPartition(NamedTuple):
    """A partition that this node looks after."""

    log: LogKey
    topic: str
    settings: TopicSettings
    # Its leader epochs, and where each begins.
    lineage: Sequence[tuple[Epoch, Offset]] = ((Epoch(LEADER_EPOCH), Offset(0)),)

    @property
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.log.topic_id, self.log.partition, self.topic)
