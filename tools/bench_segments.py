"""Measures segments in object storage against raw requests for the same bytes.

    python -m tools.bench_segments [--size MIB] [--rounds N] [--only local|moto]

For a store in a directory and for an S3 server (moto's, a process of its own), with batches of
16 KiB: the copy of a segment against one raw put in parts, and reading it through reader and cache
against raw ranged gets of the same chunks.  Prints MB/s of each, best of the rounds, and the ratio.
"""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from quipu.model.batch_types import DATA
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import SegmentPointer
from quipu.remote.segments.reader import SegmentReader
from quipu.remote.segments.writer import CHUNK_SIZE, CopyOptions, SegmentToCopy, write_segment
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import ByteRange, ObjectStore
from quipu.runtime.objects.urls import open_store
from quipu.runtime.workers import Workers
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.stored_batch import pack_prefix
from tests.harness.s3_server import CREDENTIALS, S3Server

VALUE_SIZE: Final = 1024
RECORDS: Final = 16
FETCH_SIZE: Final = 1 << 20  # as consumers ask for, per partition
CACHE_SIZE: Final = 64 << 20
NOW_MS: Final = 1_700_000_000_000


def make(size: int) -> SegmentToCopy:
    """A segment of batches of 16 records of 1 KiB that compress to half."""
    found, offset, total = [], 0, 0
    while total < size:
        values = [os.urandom(VALUE_SIZE // 2) * 2 for _ in range(RECORDS)]  # half of it is news
        batch = encode_batch([Record(None, value, timestamp=NOW_MS) for value in values],
                             base_offset=offset, leader_epoch=0)
        found.append(pack_prefix(batch, batch_type=DATA, log_offset=offset) + batch)
        offset += RECORDS
        total += len(found[-1])
    data = b"".join(found)
    return SegmentToCopy(
        name=SegmentName(UUID(int=1), 0, 0, UUID(int=2)), topic="t", data=memoryview(data),
        size=len(data), end_offset=offset, log_start=0, log_end=offset, max_timestamp=NOW_MS)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def timed(work: Callable[[], Awaitable[int]], rounds: int) -> tuple[float, float]:
    """MB/s and CPU seconds per GB of this process; the best of some rounds."""
    best = (0.0, 0.0)
    for _ in range(rounds):
        begun, cpu = time.perf_counter(), cpu_seconds()
        size = await work()
        seconds, used = time.perf_counter() - begun, cpu_seconds() - cpu
        best = max(best, (size / seconds / 1e6, used / size * 1e9))
    return best


class Measurement:
    """One store and one segment."""

    def __init__(self, store: ObjectStore, segment: SegmentToCopy, workers: Workers) -> None:
        self._store = store
        self._segment = segment
        self._workers = workers
        self.pointer: SegmentPointer | None = None

    async def put(self) -> int:
        """The same bytes, in parts of a chunk's size, unchecked."""
        data = self._segment.data
        assert isinstance(data, memoryview)

        async def parts() -> AsyncIterator[memoryview]:
            for start in range(0, len(data), CHUNK_SIZE):
                yield data[start : start + CHUNK_SIZE]

        return (await self._store.put_parts("raw", parts())).size

    async def copy(self, *, compress: bool) -> int:
        self.pointer = await write_segment(
            self._store, self._segment, CopyOptions(compress=compress),
            run=self._workers.run_patiently, clock=SystemClock())
        return self._segment.size

    async def get(self, in_flight: int) -> int:
        """Chunks by raw ranged gets, a few at a time, as the read-ahead has them."""
        size, key = self._segment.size, "raw"
        turns = asyncio.Semaphore(in_flight)

        async def one(start: int) -> int:
            async with turns:
                end = min(start + CHUNK_SIZE, size)
                (data,) = await self._store.get_ranges(key, [ByteRange(start, end)])
                return len(data)

        return sum(await asyncio.gather(*map(one, range(0, size, CHUNK_SIZE))))

    async def read(self, read_ahead: int) -> int:
        """All data batches in steps of a fetch, as a consumer reads them."""
        assert self.pointer is not None
        cache = ChunkCache(CACHE_SIZE)
        offset = found = 0
        while offset < self._segment.end_offset:
            reader = SegmentReader(self._store, self._segment.name, self.pointer, cache=cache,
                                   run=self._workers.run, read_ahead=read_ahead)
            buffers = await reader.read(offset, FETCH_SIZE, min_one=True)
            size = sum(map(len, buffers))
            offset += RECORDS * (size // ((self._segment.size // (
                self._segment.end_offset // RECORDS)) - 16))
            found += size
        return found


async def measure(name: str, store: ObjectStore, segment: SegmentToCopy, rounds: int) -> None:
    workers = Workers()
    try:
        it = Measurement(store, segment, workers)
        raw_put = await timed(it.put, rounds)
        report(name, "raw put in parts", raw_put, raw_put)
        report(name, "copy, zstd", await timed(lambda: it.copy(compress=True), rounds), raw_put)
        raw_get = await timed(lambda: it.get(3), rounds)
        report(name, "read, 2 ahead, zstd", await timed(lambda: it.read(2), rounds), raw_get)
        report(name, "copy", await timed(lambda: it.copy(compress=False), rounds), raw_put)
        for in_flight in (1, 3):
            raw_get = await timed(partial(it.get, in_flight), rounds)
            report(name, f"raw ranged gets, {in_flight} in flight", raw_get, raw_get)
            read = await timed(partial(it.read, in_flight - 1), rounds)
            report(name, f"read, {in_flight - 1} ahead", read, raw_get)
    finally:
        workers.close()
        await store.close()


def report(
    name: str, what: str, found: tuple[float, float], raw: tuple[float, float]
) -> None:
    print(f"{name:8} {what:30} {found[0]:8.0f} MB/s {found[1]:6.2f} CPU s/GB "
          f"{found[0] / raw[0]:6.2f} of raw", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="MiB of the segment")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["local", "moto"])
    args = parser.parse_args()
    os.environ.update(CREDENTIALS)
    segment = make(args.size << 20)
    if args.only != "moto":
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            asyncio.run(measure("local", open_store(f"file://{folder}", lambda: 0), segment,
                                args.rounds))
    if args.only == "local":
        return
    with S3Server() as server:
        url = server.url(server.bucket())
        asyncio.run(measure("moto", open_store(url, lambda: 0), segment, args.rounds))
        asyncio.run(measure("unsigned", open_store(f"{url}&unsigned_payload=true", lambda: 0),
                            segment, args.rounds))


if __name__ == "__main__":
    main()
