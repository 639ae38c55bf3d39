"""`RemoteStorage`: where the bytes of remote segments are, and its implementation by objects.

Invariants, of every implementation
    remote.segments.M1  what a copy returned can be read until it is deleted; a copy that raised may
                        be there, and is not used: it is repeated under a new segment id
    remote.segments.M2  to delete what is not there is no error

Kafka's RemoteStorageManager has indexes besides, as files of their own: here they are parts of the
object, which only readers know.  Not here: a storage of a user's own (managed_storage.py).
"""

from typing import NamedTuple, Protocol

from quipu.model.partition_log import RunLong
from quipu.model.token_bucket import TokenBucket
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import decode_pointer
from quipu.remote.segments.reader import SegmentReader
from quipu.remote.segments.writer import CopyOptions, SegmentToCopy, SegmentWriter
from quipu.runtime.clock import Clock
from quipu.runtime.objects.store import ObjectStore


class RemoteSegment(NamedTuple):
    """A copied segment, as its metadata describes it."""

    name: SegmentName
    custom_metadata: bytes  # what the copy returned


class RemoteStorage(Protocol):
    """Where the bytes of remote segments are."""

    async def copy_log_segment_data(self, segment: SegmentToCopy) -> bytes:
        """Store a segment with its indexes; return its custom metadata."""
        ...

    def reader(self, segment: RemoteSegment) -> SegmentReader:
        """A reader of batches, which fetches less than whole segments."""
        ...

    async def delete_log_segment_data(self, segment: RemoteSegment) -> None:
        """Delete a segment with its indexes."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


class ObjectRemoteStorage:
    """A `RemoteStorage` that stores each segment as one object."""

    def __init__(
        self, store: ObjectStore, *, cache: ChunkCache, run: RunLong, clock: Clock,
        options: CopyOptions = CopyOptions(),  # noqa: B008 frozen
        throttle: TokenBucket | None = None,
    ) -> None:
        self._store = store
        self._cache = cache
        self._run = run
        self._writer = SegmentWriter(store, options, run=run, clock=clock, throttle=throttle)

    async def copy_log_segment_data(self, segment: SegmentToCopy) -> bytes:
        return (await self._writer.write(segment)).encode()  # remote.segments.M1

    def reader(self, segment: RemoteSegment) -> SegmentReader:
        return SegmentReader(self._store, segment.name, decode_pointer(segment.custom_metadata),
                             cache=self._cache, run=self._run)

    async def delete_log_segment_data(self, segment: RemoteSegment) -> None:
        await self._store.delete([segment.name.key])  # remote.segments.M2

    async def close(self) -> None:
        self._cache.close()
        await self._store.close()
