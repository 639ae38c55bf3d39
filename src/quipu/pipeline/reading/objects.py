"""`ObjectReading`: reads segments from object storage, in a thread of this process.

    for batches in object_reading().read(url, spans):
        batches.runs               # whole batches, as a fetch returns them, in several buffers
    for batches in object_reading().read_runs(url, runs, first, end):
        batches.runs               # the same, from objects of a diskless topic

The thread runs an event loop, on which chunks are fetched several at a time, and ahead of the
caller: while it decodes, the next chunks arrive.  The caller checks a chunk itself, right before
it decodes it, because handing a chunk to another thread and back costs CPU too.  Only what has to
be decompressed is checked in other threads.  The loop's thread is made once for a process, and
again after a fork: Spark forks its Python workers.

Credentials come from this process's environment, as the store's library looks for them.  The URL
comes from the broker, unless the environment has SPARK_QUIPU_STORE_URL, or for diskless topics
SPARK_QUIPU_DISKLESS_STORE_URL: for executors that reach the store at another address, or are to
send their credentials to that one only.

Invariants
    pipeline.H1  memory is bounded: of each read, READ_AHEAD chunks that are fetched and one that is
                 decoded, or as many reads of runs; of all, a cache of CACHE_SIZE bytes for footers
    pipeline.H2  a URL from a broker names no file of this machine as credentials or certificates

Not here: which segments are read (direct.py), what is in an object (remote/segments, diskless), the
batches of runs (object_runs.py).
"""

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from quipu.client.fetch import whole_batches
from quipu.diskless.run_bytes import read_runs as fetch_runs
from quipu.diskless.values import BatchRun
from quipu.model.errors import ErrorKind, MalformedBytes, QuipuError
from quipu.pipeline.reading.object_runs import batches_of, run_groups
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.errors import SegmentDamaged
from quipu.remote.segments.footer import SegmentFooter
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import SegmentPointer
from quipu.remote.segments.reader import SegmentReader
from quipu.runtime.clock import SystemClock
from quipu.runtime.loop_thread import LoopThread
from quipu.runtime.objects.store import Buffer, ObjectStore
from quipu.runtime.objects.urls import FILE, MEMORY, REMOTE, open_store, parse_store_url
from quipu.wire.fast import slices

URL_VARIABLE: Final = "SPARK_QUIPU_STORE_URL"
DISKLESS_URL_VARIABLE: Final = "SPARK_QUIPU_DISKLESS_STORE_URL"
CACHE_SIZE: Final = 4 << 20
GROUP_SIZE: Final = 4 << 20  # batches are decoded together from this size on
READ_AHEAD: Final = 4  # chunks
THREADS: Final = 2  # that decompress chunks
STORES_MAX: Final = 8
_PATIENCE: Final = "timeout_ms=20000&retries=3"  # a broker is read from instead, after that


class StoreNotOpened(QuipuError):
    """This process cannot open the object store that a broker names."""

    kind = ErrorKind.INVALID


class TransactionsInside(QuipuError):
    """A segment has aborted transactions, which only a broker tells apart."""


class SegmentSpan(NamedTuple):
    """The offsets [first, end) of a segment."""

    name: SegmentName
    pointer: SegmentPointer
    first: int
    end: int


class ReadBatches(NamedTuple):
    """Some batches of a span."""

    first: int  # the requested offset; the first batch may begin before it
    next_offset: int  # after the last batch
    runs: list[memoryview]  # whole batches, whose checksums were compared


def store_url(given: str | None, variable: str = URL_VARIABLE) -> str:
    """The URL to open for a broker's; raises `StoreNotOpened`, or SettingError (pipeline.H2)."""
    if own := os.environ.get(variable):
        return own
    if given is None:
        raise StoreNotOpened("the broker's object store cannot be opened by other processes")
    url = parse_store_url(given)
    if url.scheme == MEMORY:
        raise StoreNotOpened("the broker's object store is in its own memory")
    if url.parameters.credentials is not None or url.parameters.ca is not None:
        raise StoreNotOpened(f"the broker names a file in the URL of its object store; set "
                             f"{variable} to read from it with this machine's files")
    if url.scheme == FILE and not Path(url.place).is_dir():
        raise StoreNotOpened(f"{url.place} is not a directory of this machine, so the broker's "
                             "object store cannot be read here: use one that executors share")
    if url.scheme in REMOTE and "timeout_ms=" not in given:
        return f"{given}{'&' if '?' in given else '?'}{_PATIENCE}"
    return given


class ObjectReading:
    """The loop, the open stores and the cache of one process."""

    def __init__(self) -> None:
        self._loop = LoopThread("quipu-direct", work_threads=THREADS)
        self._stores: dict[str, ObjectStore] = {}
        self._cache: ChunkCache = self._loop.submit(self._make_cache()).result()

    def read(
        self, url: str, spans: Sequence[SegmentSpan], *, committed: bool
    ) -> Iterator[ReadBatches]:
        """Every batch of the spans, in order; the next chunks are fetched while the caller works.

        Raises the errors of a store and of remote segments; with `committed`,
        `TransactionsInside` before a segment in which a transaction was aborted.
        """
        ahead: deque[Future[_FetchedChunk]] = deque()
        fetches = self._fetches(url, spans, committed=committed)
        try:
            while True:
                while len(ahead) < READ_AHEAD and (begun := next(fetches, None)) is not None:
                    ahead.append(begun)  # pipeline.H1
                if not ahead:
                    return
                yield from self._batches(ahead.popleft().result())
        finally:
            fetches.close()
            for each in ahead:
                each.cancel()

    def read_runs(
        self, url: str, runs: Sequence[BatchRun], first: int, end: int
    ) -> Iterator[ReadBatches]:
        """Every batch of runs of a diskless log, from the one that holds `first` on, below `end`.

        Raises the errors of a store, `ObjectNotFound` for an object that is gone, `CorruptObject`.
        """
        ahead: deque[tuple[list[BatchRun], Future[list[Buffer]]]] = deque()
        groups_left = run_groups(runs)
        try:
            while True:
                while len(ahead) < READ_AHEAD and (some := next(groups_left, None)) is not None:
                    ahead.append((some, self._loop.submit(self._fetch_runs(url, some))))
                if not ahead:
                    return
                some, fetched = ahead.popleft()
                views, next_offset = batches_of(some, fetched.result(), first, end)
                yield ReadBatches(first, next_offset, views)
                first = next_offset
        finally:
            for _, fetched in ahead:
                fetched.cancel()

    async def _fetch_runs(self, url: str, runs: Sequence[BatchRun]) -> list[Buffer]:
        return await fetch_runs(await self._store(url), runs)

    def _fetches(
        self, url: str, spans: Sequence[SegmentSpan], *, committed: bool
    ) -> "Generator[Future[_FetchedChunk], None, None]":
        """The fetch of each chunk, begun when the iterator reaches it; an error is the last one.

        The footer of a segment is fetched while the chunks of the one before are.
        """
        opening: deque[Future[_OpenSegment]] = deque()
        try:
            for index in range(len(spans)):
                for span in spans[index + len(opening) : index + 2]:
                    opening.append(self._loop.submit(self._open(url, span, committed=committed)))
                segment = opening.popleft().result()
                for number in segment.chunk_numbers:
                    yield self._loop.submit(segment.fetch(number))
        except QuipuError as error:
            failed: Future[_FetchedChunk] = Future()
            failed.set_exception(error)
            yield failed
        finally:
            for each in opening:
                each.cancel()

    def _batches(self, fetched: "_FetchedChunk") -> list[ReadBatches]:
        """The batches of a chunk; wrong bytes are fetched once more (remote.segments.R1)."""
        segment, number = fetched.segment, fetched.number
        if fetched.is_checked:
            return segment.take(number, memoryview(fetched.data))
        try:
            data = segment.reader.checked_chunk(segment.footer, number, fetched.data)
        except SegmentDamaged:
            data = self._loop.submit(
                segment.reader.chunk(segment.footer, number, attempts=1)).result()
        return segment.take(number, data)

    async def _make_cache(self) -> ChunkCache:
        return ChunkCache(CACHE_SIZE)  # pipeline.H1

    async def _store(self, url: str) -> ObjectStore:
        store = self._stores.get(url)
        if store is None:
            if len(self._stores) >= STORES_MAX:
                await self._stores.pop(next(iter(self._stores))).close()
            try:
                store = await self._loop.run(lambda: open_store(url, SystemClock().now_ms))
            except ImportError as error:
                raise StoreNotOpened(f"a library for the broker's object store is missing: "
                                     f"{error}") from error
            self._stores[url] = store
        return store

    async def _open(self, url: str, span: SegmentSpan, *, committed: bool) -> "_OpenSegment":
        reader = SegmentReader(await self._store(url), span.name, span.pointer, cache=self._cache,
                               run=self._loop.run)
        footer = await reader.footer()
        if not footer.name.start_offset <= span.first < span.end <= footer.end_offset:
            raise MalformedBytes(f"{span.name.key} has offsets {footer.name.start_offset} to "
                                 f"{footer.end_offset}, not those of its metadata")
        if committed and footer.transaction_index:
            raise TransactionsInside(f"{span.name.key} has aborted transactions")
        return _OpenSegment(reader, footer, span)


class _FetchedChunk(NamedTuple):
    segment: "_OpenSegment"
    number: int
    data: Buffer  # as stored, or its batches
    is_checked: bool


class _OpenSegment:
    """A span of a segment that is read, and how far it was."""

    def __init__(self, reader: SegmentReader, footer: SegmentFooter, span: SegmentSpan) -> None:
        self.reader = reader
        self.footer = footer
        self._span = span
        self._reached = span.first
        chunks = footer.chunks
        end = bisect_left(chunks, span.end, key=lambda chunk: chunk.first_offset)
        self.chunk_numbers = range(footer.find_chunk(span.first), end)

    async def fetch(self, number: int) -> _FetchedChunk:
        """A chunk; one that has to be decompressed is also checked, in a thread for that."""
        if self.footer.chunks[number].is_compressed:
            return _FetchedChunk(self, number, await self.reader.chunk(self.footer, number),
                                 is_checked=True)
        return _FetchedChunk(self, number, await self.reader.stored_chunk(self.footer, number),
                             is_checked=False)

    def take(self, number: int, data: memoryview) -> list[ReadBatches]:
        """The batches of chunk `number` in the span; raises unless they are the next ones."""
        span, found = self._span, []
        buffers, _, _ = slices(data, 0, offset=self._reached, end_offset=span.end,
                                  limit=len(data), min_one=False)
        for runs in groups(buffers):
            first = self._reached
            for run in runs:
                size, next_offset = whole_batches(run, span.end)
                if (size != len(run) or next_offset <= self._reached
                        or int.from_bytes(run[:8], "big") > self._reached):  # its base offset
                    raise self._wrong(next_offset)
                self._reached = next_offset
            found.append(ReadBatches(first, self._reached, runs))
        if number == self.chunk_numbers[-1] and self._reached < span.end:
            raise self._wrong(self._reached)
        return found

    def _wrong(self, next_offset: int) -> MalformedBytes:
        return MalformedBytes(f"{self._span.name.key}: asked for offsets {self._reached} to "
                              f"{self._span.end}, read batches up to {next_offset}")


def groups(buffers: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """The buffers in groups of at least GROUP_SIZE bytes, the last one excepted."""
    group: list[memoryview] = []
    size = 0
    for buffer in buffers:
        group.append(buffer)
        size += len(buffer)
        if size >= GROUP_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


_made: dict[int, ObjectReading] = {}  # by process: after a fork the thread is the parent's


def object_reading() -> ObjectReading:
    """The reading of this process, made by the first call."""
    found = _made.get(os.getpid())
    if found is None:
        _made.clear()
        found = _made.setdefault(os.getpid(), ObjectReading())
    return found
