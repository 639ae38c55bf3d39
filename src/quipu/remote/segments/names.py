"""The name of a remote segment, and the key of its object.

    {topic id}/{partition}/{start offset, 20 digits}-{segment id}.log

Ids are UUIDs, in their usual form of 36 characters.  The topic's name is not in the key: it may be
longer than a key's parts may be, or begin with a dot; the object's footer holds it.  Keys of one
partition sort by start offset.
"""

import re
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.bounds import OFFSET_MAX

PARTITION_MAX: Final = (1 << 31) - 1
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KEY: Final = re.compile(rf"({_UUID})/(0|[1-9][0-9]{{0,9}})/([0-9]{{20}})-({_UUID})\.log")


class SegmentName(NamedTuple):
    """What identifies a remote segment; a copy that is repeated gets a new `segment_id`."""

    topic_id: UUID
    partition: int
    start_offset: int  # the first offset that clients see in it
    segment_id: UUID

    @property
    def key(self) -> str:
        """The key of the segment's object."""
        assert 0 <= self.start_offset <= OFFSET_MAX, self
        assert 0 <= self.partition <= PARTITION_MAX, self
        return f"{self.topic_id}/{self.partition}/{self.start_offset:020d}-{self.segment_id}.log"


def partition_prefix(topic_id: UUID, partition: int) -> str:
    """What the keys of all segments of a partition begin with."""
    return f"{topic_id}/{partition}/"


def find_name(key: str) -> SegmentName | None:
    """The segment that a key names; None if it is not the key of a segment."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    topic_id, partition, start_offset, segment_id = found.groups()
    if int(partition) > PARTITION_MAX or int(start_offset) > OFFSET_MAX:
        return None
    return SegmentName(UUID(topic_id), int(partition), int(start_offset), UUID(segment_id))
