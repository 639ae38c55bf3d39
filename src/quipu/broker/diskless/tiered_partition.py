"""A diskless partition whose old records this node moves to the remote tier."""

from typing import Final, NamedTuple

from quipu.diskless.values import LEADER_EPOCH, LogKey
from quipu.model.ids import Epoch, Offset
from quipu.model.settings import TopicSettings
from quipu.remote.metadata.segment_metadata import TopicIdPartition

LINEAGE: Final = [(Epoch(LEADER_EPOCH), Offset(0))]  # the leader epochs of every diskless log


class TieredPartition(NamedTuple):
    """A partition that this node looks after."""

    log: LogKey
    topic: str
    settings: TopicSettings

    @property
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.log.topic_id, self.log.partition, self.topic)
