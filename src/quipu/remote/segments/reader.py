"""Reads one remote segment, fetching only the chunks that are needed.

A chunk is checked once, when it is fetched, and comes from the cache after that.  A reader that
goes on where the chunk before ended is sequential: the next chunks are fetched ahead of it.  Who
reads every chunk once needs no cache, and may check chunks in a thread of its own: `stored_chunk`.

Invariants
    remote.segments.R1  what is returned was checked: footer and chunks by their checksums, and each
                        batch by its own; wrong bytes are fetched once more, then `SegmentDamaged`
                        is raised
    remote.segments.R2  a read fetches the footer and the chunks that hold what it returns, and no
                        other bytes, except for what it reads ahead
    remote.segments.R3  a read returns whole data batches without prefixes, the first of which holds
                        the offset, as `PartitionLog.read` does (model.P4)

Not here: which segment holds an offset (remote/metadata).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from crc32c import crc32c

from quipu.model.batch_types import DATA
from quipu.model.errors import MalformedBytes, OffsetOutOfRange
from quipu.model.partition_log import RunLong, TimestampAndOffset
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.chunks import check_chunk
from quipu.remote.segments.errors import SegmentDamaged, SegmentMissing
from quipu.remote.segments.footer import SegmentFooter, decode_footer
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import (
    TRAILER_SIZE,
    SegmentPointer,
    decode_trailer,
)
from quipu.remote.segments.times import TimeWanted, find_time_in
from quipu.runtime.objects.errors import InvalidObjectRequest, ObjectNotFound
from quipu.runtime.objects.store import GET_SIZE_MAX, Buffer, ByteRange, ObjectStore
from quipu.wire.fast import slices
from quipu.wire.stored_batch import StoredHeader, kafka_batch, parse_stored

READ_AHEAD: Final = 2  # chunks
FOOTER: Final = -1  # in the cache, in the place of a chunk's number
ATTEMPTS_MAX: Final = 2  # to fetch bytes that have the right checksum
_SPAN: Final = Struct(">q15xi")  # of a Kafka batch: baseOffset, lastOffsetDelta

T = TypeVar("T")


class RemoteBatch(NamedTuple):
    """One stored batch of any type."""

    header: StoredHeader
    data: memoryview  # prefix and Kafka batch

    @property
    def batch(self) -> memoryview:
        """The Kafka batch alone."""
        return kafka_batch(self.data, 0, self.header)


class VerifiedSegment(NamedTuple):
    """What `SegmentReader.verify` has read."""

    footer: SegmentFooter
    batch_count: int
    stored_size: int


class RangesStore(Protocol):
    """What a reader needs of an object store."""

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        """The bytes of each range of an object; see `ObjectStore`."""
        ...


class SegmentReader:
    """Reads one segment; cheap to make, so one for each read will do."""

    def __init__(
        self, store: RangesStore, name: SegmentName, pointer: SegmentPointer, *,
        cache: ChunkCache, run: RunLong, read_ahead: int = READ_AHEAD,
    ) -> None:
        self._store = store
        self._name = name
        self._key = name.key
        self._pointer = pointer
        self._id = name.key, pointer.footer_crc  # in the cache
        self._cache = cache
        self._run = run
        self._read_ahead = read_ahead

    async def footer(self) -> SegmentFooter:
        """The segment's footer, checked."""
        return await self._cache.get((*self._id, FOOTER), self._load_footer)

    async def read(
        self, offset: int, max_bytes: int, *, end: int | None = None, min_one: bool
    ) -> list[memoryview]:
        """Data batches from the one that holds `offset` on, below `end`, without prefixes.

        They have at most `max_bytes` together, except that with `min_one` the first may be larger.
        """
        footer = await self.footer()
        cursor = self._cursor(footer, offset, max_bytes, end=end, min_one=min_one)
        is_first_read = offset == footer.name.start_offset
        while not cursor.is_done:
            number = cursor.number
            data = await self._chunk(footer, number)
            self._fetch_ahead(footer, number, is_first_read=is_first_read)
            self._take(cursor, data)
        return self._checked(cursor)

    def read_held(
        self, offset: int, max_bytes: int, *, end: int | None = None, min_one: bool
    ) -> list[memoryview] | None:
        """As `read`, at once, as far as the cache holds it; None if it does not hold the first.

        It may return less than there is: the batches of the chunks that are held.
        """
        footer = self._held_footer()
        if footer is None:
            return None
        cursor = self._cursor(footer, offset, max_bytes, end=end, min_one=min_one)
        is_first_read = offset == footer.name.start_offset
        while not cursor.is_done:
            number = cursor.number
            data = self._cache.find((*self._id, number))
            if data is None:
                break
            self._fetch_ahead(footer, number, is_first_read=is_first_read)
            self._take(cursor, cast("memoryview", data))
        return self._checked(cursor) if cursor.is_done or cursor.buffers else None

    def ends_soon(self, offset: int) -> bool:
        """Will a sequential reader at `offset` want the next segment before long?"""
        footer = self._held_footer()
        if footer is None:
            return False
        number = footer.find_chunk(offset)
        return number + self._read_ahead >= len(footer.chunks) and (
            number == 0 or self._cache.holds((*self._id, number - 1)))

    async def prepare(self) -> None:
        """Fetch ahead what a reader needs that begins at the segment's first offset."""
        footer = await self.footer()
        self._fetch_ahead(footer, -1, is_first_read=True)

    def _cursor(
        self, footer: SegmentFooter, offset: int, max_bytes: int, *, end: int | None, min_one: bool
    ) -> "_ReadCursor":
        end = footer.end_offset if end is None else min(end, footer.end_offset)
        if not footer.name.start_offset <= offset < footer.end_offset:
            raise OffsetOutOfRange(
                self._key, offset, footer.name.start_offset, footer.end_offset)
        return _ReadCursor(footer, offset, max_bytes, end=end, min_one=min_one)

    def _take(self, cursor: "_ReadCursor", data: memoryview) -> None:
        try:
            cursor.take(data)
        except MalformedBytes as error:  # the index says where no batch is
            raise self._damaged(str(error)) from error

    def _checked(self, cursor: "_ReadCursor") -> list[memoryview]:
        """What was read; raises unless the first batch holds the offset (remote.segments.R3)."""
        buffers, offset = cursor.buffers, cursor.offset
        if not buffers:
            if cursor.min_one and offset < cursor.end:
                raise self._damaged(f"no batch holds offset {offset}")
            return buffers
        base, last_delta = _SPAN.unpack_from(buffers[0])
        if not base <= offset <= base + last_delta:
            raise self._damaged(f"the batch for offset {offset} begins at {base}")
        return buffers

    async def find_timestamp(
        self, timestamp: int, *, start_offset: int = 0
    ) -> TimestampAndOffset | None:
        """The first record at or after `start_offset` that is as new as `timestamp`."""
        footer = await self.footer()
        if footer.max_timestamp < timestamp or footer.end_offset <= start_offset:
            return None
        at = footer.find_position_by_time(timestamp)
        if start_offset > footer.name.start_offset:
            at = max(at, footer.find_position(start_offset))
        number = footer.find_chunk_at(at)
        wanted = TimeWanted(timestamp, start_offset)
        while number < len(footer.chunks):
            data = await self._chunk_in_turn(footer, number)
            position = max(0, at - footer.chunks[number].start)
            found = await self._run(partial(find_time_in, data, position, wanted))
            if found is not None:
                return found
            number += 1
        return None

    async def batches(self, log_offset: int = 0) -> AsyncIterator[RemoteBatch]:
        """Every batch of any type, from the one that holds `log_offset` on."""
        footer = await self.footer()
        for number in range(footer.find_chunk_by_log_offset(log_offset), len(footer.chunks)):
            data = await self._chunk_in_turn(footer, number)
            position = 0
            while position < len(data):
                header = parse_stored(data, position)
                if header.next_log_offset > log_offset:
                    yield RemoteBatch(header, data[position : position + header.size])
                position += header.size

    async def verify(self) -> VerifiedSegment:
        """Read and check everything, without the cache; raises `SegmentDamaged`."""
        footer, _ = await self._load_footer()
        batch_count = 0
        marks = {position: (offset, log_offset)
                 for offset, log_offset, position, _ in footer.marks()}
        offset = footer.name.start_offset
        for number, entry in enumerate(footer.chunks):
            data, _ = await self._load_chunk(footer, number)
            count, offset = await self._run(partial(
                _check_offsets, data, entry.start, offset, marks))
            if count < 0:
                raise self._damaged(f"offset {offset} does not follow the one before it, or is "
                                    "not where the index says")
            batch_count += count
        if marks or offset != footer.end_offset:
            raise self._damaged(f"the segment ends at offset {offset}, not {footer.end_offset}")
        return VerifiedSegment(footer, batch_count, self._pointer.object_size)

    # -- without the cache

    async def stored_chunk(self, footer: SegmentFooter, number: int) -> Buffer:
        """The bytes of a chunk as they are stored; nothing is checked before `checked_chunk`."""
        return await self._fetch(*_place(footer, number), _unchanged)

    def checked_chunk(self, footer: SegmentFooter, number: int, stored: Buffer) -> memoryview:
        """The batches of a chunk, in this thread; raises `SegmentDamaged` (remote.segments.R1)."""
        return check_chunk(stored, footer.chunks[number], log_end=footer.log_end_of(number))

    async def chunk(
        self, footer: SegmentFooter, number: int, *, attempts: int = ATTEMPTS_MAX
    ) -> memoryview:
        """The batches of a chunk, fetched and checked."""
        check = partial(self.checked_chunk, footer, number)
        return await self._fetch(*_place(footer, number),
                                 lambda data: self._run(partial(check, data)), attempts)

    # -- fetching

    def _held_footer(self) -> SegmentFooter | None:
        return cast("SegmentFooter | None", self._cache.find((*self._id, FOOTER)))

    async def _chunk(self, footer: SegmentFooter, number: int) -> memoryview:
        """The batches of a chunk."""
        return await self._cache.get((*self._id, number), partial(self._load_chunk, footer, number))

    async def _chunk_in_turn(self, footer: SegmentFooter, number: int) -> memoryview:
        """The same, for a reader that wants the next ones as well if it had the one before."""
        data = await self._chunk(footer, number)
        self._fetch_ahead(footer, number)
        return data

    def _fetch_ahead(
        self, footer: SegmentFooter, number: int, *, is_first_read: bool = False
    ) -> None:
        """Fetch the chunks after `number`, if who reads that one is a sequential reader.

        A reader at a random place fetches one chunk alone (remote.segments.R2).
        """
        if not (is_first_read if number <= 0 else self._cache.holds((*self._id, number - 1))):
            return
        for ahead in range(number + 1, min(number + 1 + self._read_ahead, len(footer.chunks))):
            key = (*self._id, ahead)
            if not self._cache.holds(key):
                self._cache.prefetch(key, footer.chunks[ahead].size,
                                     partial(self._load_chunk, footer, ahead))

    async def _load_footer(self) -> tuple[SegmentFooter, int]:
        position, size, crc = self._pointer

        def check(data: Buffer) -> SegmentFooter:
            if len(data) != size + TRAILER_SIZE or crc32c(data[:size]) != crc:
                raise SegmentDamaged("a footer with a bad checksum")
            if decode_trailer(data[size:]) != self._pointer:
                raise SegmentDamaged("a trailer that does not match the segment's metadata")
            footer = decode_footer(data[:size], position=position)
            if footer.name != self._name:
                raise SegmentDamaged(f"the object of another segment, {footer.name.key}")
            return footer

        footer = await self._fetch(position, position + size + TRAILER_SIZE,
                                   lambda data: self._run(partial(check, data)))
        return footer, footer.memory_size

    async def _load_chunk(self, footer: SegmentFooter, number: int) -> tuple[memoryview, int]:
        data = await self.chunk(footer, number)
        return data, len(data)

    async def _fetch(
        self, start: int, end: int, finish: Callable[[Buffer], Awaitable[T]],
        attempts: int = ATTEMPTS_MAX,
    ) -> T:
        """What `finish` makes of some bytes of the object; another attempt if it refuses them."""
        for attempt in range(1, attempts + 1):
            try:
                return await finish(await self._get(start, end))
            except ObjectNotFound as error:
                raise SegmentMissing(f"{self._key}: the object of this segment does not exist: "
                                     "look into the metadata again") from error
            except (SegmentDamaged, MalformedBytes, InvalidObjectRequest) as error:
                if attempt == attempts:  # remote.segments.R1
                    raise self._damaged(f"bytes {start} to {end}: {error}") from error
        raise AssertionError("unreachable")

    async def _get(self, start: int, end: int) -> Buffer:
        if end - start <= GET_SIZE_MAX:
            (data,) = await self._store.get_ranges(self._key, [ByteRange(start, end)])
            return data
        pieces: list[Buffer] = []
        for at in range(start, end, GET_SIZE_MAX):
            pieces += await self._store.get_ranges(
                self._key, [ByteRange(at, min(at + GET_SIZE_MAX, end))])
        return b"".join(pieces)

    def _damaged(self, why: str) -> SegmentDamaged:
        return SegmentDamaged(f"{self._key}: {why}; restore the object, or delete the segment")


class _ReadCursor:
    """One read of data batches: the chunk that it needs next, and what it has found so far."""

    __slots__ = ("_limit", "_position", "buffers", "end", "footer", "is_done", "min_one", "number",
                 "offset")

    def __init__(
        self, footer: SegmentFooter, offset: int, max_bytes: int, *, end: int, min_one: bool
    ) -> None:
        self.footer = footer
        self.offset = offset
        self.end = end
        self.min_one = min_one
        self.buffers: list[memoryview] = []
        self.number = footer.find_chunk(offset)  # remote.segments.R2
        self.is_done = offset >= end
        self._limit = max_bytes
        self._position = max(0, footer.find_position(offset) - footer.chunks[self.number].start)

    def take(self, data: memoryview) -> None:
        """Use the batches of chunk `number`; raises `MalformedBytes`."""
        assert not self.is_done
        found, size, stopped = slices(
            data, self._position, offset=self.offset, end_offset=self.end, limit=self._limit,
            min_one=self.min_one and not self.buffers)
        self.buffers += found
        self._limit -= size
        self.number, self._position = self.number + 1, 0
        chunks = self.footer.chunks
        self.is_done = (
            stopped < len(data) or (self._limit <= 0 and (bool(self.buffers) or not self.min_one))
            or self.number >= len(chunks) or chunks[self.number].first_offset >= self.end)


async def find_pointer(store: ObjectStore, key: str) -> SegmentPointer:
    """The pointer of an object without its metadata, by its trailer."""
    try:
        info = await store.head(key)
        start = max(0, info.size - TRAILER_SIZE)
        (data,) = await store.get_ranges(key, [ByteRange(start, max(info.size, 1))])
        pointer = decode_trailer(data)
    except ObjectNotFound as error:
        raise SegmentMissing(f"{key}: there is no such object") from error
    except (MalformedBytes, InvalidObjectRequest) as error:
        raise SegmentDamaged(f"{key}: {error}") from error
    if pointer.object_size != info.size:
        raise SegmentDamaged(f"{key}: has {info.size} bytes, not {pointer.object_size}")
    return pointer


def _place(footer: SegmentFooter, number: int) -> tuple[int, int]:
    """Where a chunk begins and ends in its object."""
    entry = footer.chunks[number]
    return entry.position, entry.position + entry.stored_size


async def _unchanged(data: Buffer) -> Buffer:
    return data


def _check_offsets(
    data: memoryview, start: int, offset: int, marks: dict[int, tuple[int, int]]
) -> tuple[int, int]:
    """Count the batches of a chunk, and check that client offsets are dense and the index right.

    Returns the count and the next offset; the count is -1 if the batch with that offset is wrong.
    """
    position, count = 0, 0
    while position < len(data):
        header = parse_stored(data, position)
        mark = marks.pop(start + position, None)
        if header.base_offset != offset or (
                mark is not None and mark != (offset, header.log_offset)):
            return -1, offset
        offset = header.next_offset if header.batch_type == DATA else offset
        position += header.size
        count += 1
    return count, offset
