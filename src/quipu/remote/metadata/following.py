"""A partition that this broker follows: it reads what the leader has stored, and writes nothing.

A segment is found by the greatest reference of its leader epoch that is not above the offset; then
the segment is read.  Nothing is cached, so a follower sees every write that has returned.

Invariant
    remote.F1  an unknown epoch, or an offset that no segment holds, gives None and no error; a
               segment that is returned was COPY_SEGMENT_FINISHED, and held the offset
"""

from typing import Final

from quipu.remote.metadata.changes import MetadataStorage, read_segment, walk_in_turns
from quipu.remote.metadata.segment_metadata import (
    INT32_MAX,
    INT64_MAX,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.serde import (
    EpochHeader,
    EpochReference,
    UnreferencedSegment,
    read_value,
)
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.metadata.storage.backend import KeyValue, find_floor, get_many

FIND_ATTEMPTS_MAX: Final = 3  # if the segment is replaced or deleted between the two reads


class FollowerPartition:
    """The remote segments of one partition, as they are stored."""

    def __init__(self, storage: MetadataStorage, partition: TopicIdPartition) -> None:
        self.partition = partition
        self._storage = storage

    @property
    def is_ready(self) -> bool:
        return True

    async def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The finished segment in which `offset` of leader epoch `epoch` is read (remote.F1)."""
        if not (0 <= epoch <= INT32_MAX and 0 <= offset <= INT64_MAX):
            return None
        backend, keys, serde = self._storage
        parent = keys.references_key(self.partition, epoch)
        for _ in range(FIND_ATTEMPTS_MAX):
            floor = await find_floor(
                backend, parent, keys.reference_key(self.partition, epoch, offset))
            if floor is None:
                return None
            reference = read_value(serde, EpochReference, *floor).reference
            if not reference.start <= offset <= reference.end:
                return None
            key = keys.segment_key(self.partition, reference.segment)
            stored = await backend.get(key)
            if stored is not None:
                segment = read_segment(self._storage, self.partition, KeyValue(key, stored))
                if segment.state is COPY_FINISHED:
                    return segment
        return None

    async def next_with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment at or after `offset`, without a gap, whose transaction index is not
        empty.
        """
        while True:
            found = await self.find(epoch, offset)
            if found is None or not found.txn_index_empty:
                return found
            offset = found.end_offset + 1

    async def highest_offset(self, epoch: int) -> int | None:
        """The highest offset ever copied in `epoch`."""
        if not 0 <= epoch <= INT32_MAX:
            return None
        key = self._storage.keys.epoch_header_key(self.partition, epoch)
        stored = await self._storage.backend.get(key)
        if stored is None:
            return None
        return read_value(self._storage.serde, EpochHeader, key, stored).highest

    async def segments(self) -> list[RemoteLogSegmentMetadata]:
        """All segments, in no particular order."""
        parent = self._storage.keys.segments_key(self.partition)
        return [read_segment(self._storage, self.partition, each)
                async for each in walk_in_turns(self._storage, parent)]

    async def segments_of(self, epoch: int) -> list[RemoteLogSegmentMetadata]:
        """All segments with records of `epoch`, by start offset."""
        if not 0 <= epoch <= INT32_MAX:
            return []
        backend, keys, serde = self._storage
        wanted = set()
        async for entry in walk_in_turns(
                self._storage, keys.epoch_key(self.partition, epoch)):
            value = serde.deserialize(entry.value)
            if isinstance(value, EpochReference):
                wanted.add(value.reference.segment)
            elif isinstance(value, UnreferencedSegment):
                wanted.add(value.segment)
        found = await get_many(
            backend, [keys.segment_key(self.partition, each) for each in sorted(wanted)])
        return sorted((read_segment(self._storage, self.partition, KeyValue(*each))
                       for each in found.items()), key=lambda each: each.order)

    async def size_bytes(self, epoch: int) -> int:
        """The size of all segments with records of `epoch`."""
        return sum(each.segment_size_bytes for each in await self.segments_of(epoch))
