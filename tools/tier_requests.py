"""Counts the requests to an S3 server that remote segments cost, and the bytes in their objects.

    python -m tools.tier_requests [--size MIB]

One segment with batches of 16 KiB is copied to an S3 server (moto's, a process of its own), read
from its first to its last record as a consumer does, read at one offset, verified and deleted; each
with nothing in the cache.
"""

import argparse
import asyncio
import os
from collections import Counter
from collections.abc import Awaitable

from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.reader import SegmentReader
from quipu.runtime.objects.urls import open_store
from quipu.runtime.workers import Workers
from tests.harness.s3_server import CREDENTIALS, S3Server
from tests.harness.store_proxy import StoreProxy
from tools.bench_segments import CACHE_SIZE, FETCH_SIZE, Measurement, make


async def count_requests(url: str, proxy: StoreProxy, size: int) -> None:
    segment = make(size)
    store, workers = open_store(url, lambda: 0), Workers()
    measured = Measurement(store, segment, workers)

    async def report(what: str, work: Awaitable[object]) -> None:
        proxy.requests.clear()
        await work
        found = Counter(line.split()[0].decode() for line in proxy.requests)
        print(f"{what:24} " + "  ".join(f"{name} {found[name]:4}" for name in
                                        ("PUT", "POST", "GET", "HEAD", "DELETE")), flush=True)

    def reader() -> SegmentReader:
        assert measured.pointer is not None
        return SegmentReader(store, segment.name, measured.pointer, cache=ChunkCache(CACHE_SIZE),
                             run=workers.run)

    try:
        for compress in (True, False):
            await report("copy, zstd" if compress else "copy", measured.copy(compress=compress))
            assert measured.pointer is not None
            whole = measured.pointer
            print(f"{'':24} {segment.size} bytes as {whole.object_size}, of which the footer has "
                  f"{whole.footer_size}")
        await report("read all of it", measured.read(2))
        middle = segment.end_offset // 2
        await report("read 1 MiB in the middle", reader().read(middle, FETCH_SIZE, min_one=True))
        await report("verify", reader().verify())
        await report("delete", store.delete([segment.name.key]))
    finally:
        workers.close()
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="MiB of the segment")
    size = parser.parse_args().size << 20
    os.environ.update(CREDENTIALS)
    with S3Server() as server, StoreProxy(server.port) as proxy:
        url = server.url(server.bucket(), port=proxy.port)
        asyncio.run(count_requests(url, proxy, size))


if __name__ == "__main__":
    main()
