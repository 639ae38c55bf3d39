"""Segments in a storage of a user's own: a class that a setting names stores the bytes.

    remote.log.storage.manager.class.name    a class with the methods of `RemoteStorageManager`
    remote.log.storage.manager.class.path    directories in which it is found, too
    rsm.config.*                             its settings, given to it without that prefix

What the class is given to store is the object that would be put into an object store: the batches
in checked chunks, with their indexes.  So it keeps bytes, and knows nothing of batches; reads are
checked, cached and read ahead as those of objects are.

Invariant
    remote.segments.M3  custom metadata begins with the pointer, so that a damaged or foreign answer
                        is found by its checksum; what the class returned follows, and comes back to
                        it unchanged

Not here: the object's format (writer.py, reader.py), object stores (runtime/objects).
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Final, Protocol

from quipu.model.errors import QuipuError, SettingError
from quipu.model.partition_log import RunLong
from quipu.model.token_bucket import TokenBucket
from quipu.remote.class_names import add_class_path, construct, load_class
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.pointer import POINTER_SIZE, decode_pointer
from quipu.remote.segments.reader import SegmentReader
from quipu.remote.segments.remote_storage import RemoteSegment
from quipu.remote.segments.writer import CopyOptions, SegmentToCopy, write_segment
from quipu.runtime.clock import Clock
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.store import NO_TIME, Buffer, ByteRange, ObjectInfo

MANAGER_CLASS: Final = "remote.log.storage.manager.class.name"
MANAGER_CLASS_PATH: Final = "remote.log.storage.manager.class.path"
BROKER_ID: Final = "broker.id"  # which Kafka gives to such a class, too


class RemoteStorageManager(Protocol):
    """What a class must have, which is called with its settings; each method may be retried.

    A segment's `name` tells it from all others, and `name.key` is a path for it; when it is copied,
    its `custom_metadata` is still empty.  Any exception means that the call failed, and is made
    again later; `quipu.remote.segments.errors.SegmentMissing` that the bytes are not there.
    Methods run on the node's event loop: what blocks belongs in a thread.
    """

    async def copy_log_segment_data(
        self, segment: RemoteSegment, data: AsyncIterator[memoryview]
    ) -> bytes | None:
        """Store all of `data`, durably; return custom metadata of at most 104 bytes, if any."""
        ...

    async def fetch_log_segment(self, segment: RemoteSegment, start: int, end: int) -> Buffer:
        """The stored bytes from position `start` up to `end` (exclusive)."""
        ...

    async def delete_log_segment_data(self, segment: RemoteSegment) -> None:
        """Delete what is stored, all or part of it; nothing is there: no error."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


_METHODS: Final = (
    "copy_log_segment_data", "fetch_log_segment", "delete_log_segment_data", "close")


def make_storage_manager(
    name: str, *, class_path: str, settings: Mapping[str, str], broker_id: int
) -> RemoteStorageManager:
    """An object of the class `name`, with `settings`; raises `SettingError`."""
    add_class_path(class_path, MANAGER_CLASS_PATH)
    made = construct(load_class(name, MANAGER_CLASS), MANAGER_CLASS,
                     {**settings, BROKER_ID: str(broker_id)})
    lacking = [each for each in _METHODS if not callable(getattr(made, each, None))]
    if lacking:
        raise SettingError(f"{MANAGER_CLASS}: {name} has no {', '.join(lacking)}; a class that "
                           f"stores segments has {', '.join(_METHODS)}")
    return made  # type: ignore[return-value]  # as was just checked


class ManagedRemoteStorage:
    """A `RemoteStorage` over a user's class."""

    def __init__(
        self, manager: RemoteStorageManager, *, cache: ChunkCache, run: RunLong, clock: Clock,
        options: CopyOptions = CopyOptions(),  # noqa: B008 frozen
        throttle: TokenBucket | None = None,
    ) -> None:
        self._manager = manager
        self._cache = cache
        self._run = run
        self._clock = clock
        self._options = options
        self._throttle = throttle

    async def copy_log_segment_data(self, segment: SegmentToCopy) -> bytes:
        target = _ManagedObject(self._manager, RemoteSegment(segment.name, b""))
        pointer = await write_segment(target, segment, self._options, run=self._run,
                                      clock=self._clock, throttle=self._throttle)
        return pointer.encode() + target.custom_metadata  # remote.segments.M3

    def reader(self, segment: RemoteSegment) -> SegmentReader:
        return SegmentReader(
            _ManagedObject(self._manager, _own(segment)), segment.name,
            decode_pointer(segment.custom_metadata[:POINTER_SIZE]), cache=self._cache,
            run=self._run)

    async def delete_log_segment_data(self, segment: RemoteSegment) -> None:
        try:
            await self._manager.delete_log_segment_data(_own(segment))
        except QuipuError:
            raise
        except Exception as error:  # the class is the user's, and may raise anything
            raise _failed(segment, error) from error

    async def close(self) -> None:
        self._cache.close()
        await self._manager.close()


class _ManagedObject:
    """One object in a user's storage: what a writer and a reader need of an object store."""

    def __init__(self, manager: RemoteStorageManager, segment: RemoteSegment) -> None:
        self._manager = manager
        self._segment = segment
        self.custom_metadata = b""

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        size, is_ended = 0, False

        async def counted() -> AsyncIterator[memoryview]:
            nonlocal size, is_ended
            async for part in parts:
                size += len(part)
                yield memoryview(part)
            is_ended = True

        try:
            custom = await self._manager.copy_log_segment_data(self._segment, counted())
            if not is_ended:
                raise ValueError(f"only {size} bytes of the segment were taken")
            self.custom_metadata = bytes(_checked(b"" if custom is None else custom))
        except QuipuError:
            raise
        except Exception as error:  # the class is the user's, and may raise anything
            raise _failed(self._segment, error) from error
        return ObjectInfo(key, size, "", NO_TIME)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        assert key == self._segment.name.key, key
        try:
            return [_checked(await self._manager.fetch_log_segment(self._segment, *each))
                    for each in ranges]
        except QuipuError:
            raise
        except Exception as error:  # the class is the user's, and may raise anything
            raise _failed(self._segment, error) from error


def _checked(data: object) -> Buffer:
    """What the class returned, if that is bytes."""
    if not isinstance(data, Buffer):
        raise TypeError(f"bytes were expected, not {type(data).__name__}")
    return data


def _own(segment: RemoteSegment) -> RemoteSegment:
    """A segment as the class knows it (remote.segments.M3)."""
    return segment._replace(custom_metadata=segment.custom_metadata[POINTER_SIZE:])


def _failed(segment: RemoteSegment, error: Exception) -> StoreUnavailable:
    """What an exception of the class means."""
    return StoreUnavailable(f"{segment.name.key}: {MANAGER_CLASS}: {type(error).__name__}: "
                            f"{error}")
