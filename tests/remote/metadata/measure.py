"""Measures what an event costs with many segments; a program, not a test.

    python -m tests.remote.metadata.measure [COUNT]

For each backend: a partition of COUNT segments is written to the store directly; then a leader
takes over, 200 segments are copied and deleted, and a follower looks up 200 offsets.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from quipu.remote.metadata.changes import MetadataStorage, change_operations
from quipu.remote.metadata.partition_cache import PartitionCache
from quipu.remote.metadata.segment_metadata import TopicIdPartition
from quipu.remote.metadata.serde import KafkaSerde
from quipu.remote.metadata.states import COPY_FINISHED, DELETE_FINISHED, DELETE_STARTED
from quipu.remote.metadata.storage.backend import MetadataStorageBackend, Operation
from quipu.remote.metadata.storage.keys import PathKeyFactory
from quipu.remote.metadata.storage.memory import MemoryBackend
from quipu.remote.metadata.storage.postgres import PostgresBackend
from quipu.remote.metadata.storage.sqlite import SqliteBackend
from quipu.runtime.rng import SystemRng
from tests.harness.postgres import PostgresServer
from tests.remote.metadata.segments import fresh_partition, segment, update
from tests.remote.metadata.world import manager_of

EVENTS = 200
FILL_AT_ONCE = 2_000


async def fill(backend: MetadataStorageBackend, partition: TopicIdPartition, count: int) -> None:
    """Store `count` segments, thousands of operations at a time."""
    cache = PartitionCache(partition)
    storage = MetadataStorage(backend, PathKeyFactory(), KafkaSerde())
    operations: list[Operation] = []
    for n in range(count):
        added = segment(partition, 100 * n, 100 * n + 99, {3: 100 * n}, id=uuid4())
        for is_finished in (False, True):
            planned = (cache.plan_update(update(added, COPY_FINISHED)) if is_finished
                       else cache.plan_add(added))
            operations += change_operations(storage, cache, planned)
            cache.apply(planned)
        if len(operations) > FILL_AT_ONCE:
            await backend.execute(operations)
            operations = []
    await backend.execute(operations)


async def timed(count: int, work: Callable[[int], Awaitable[object]]) -> float:
    """The median of `count` calls in microseconds."""
    spent = []
    for n in range(count):
        began = time.perf_counter()
        await work(n)
        spent.append(time.perf_counter() - began)
    return sorted(spent)[count // 2] * 1e6


async def measure(name: str, backend: MetadataStorageBackend, count: int) -> None:
    partition = fresh_partition()
    await fill(backend, partition, count)
    leader, follower = await manager_of(backend), await manager_of(backend)
    began = time.perf_counter()
    await leader.on_partition_leadership_changes({partition: 1}, [])
    load = time.perf_counter() - began
    await follower.on_partition_leadership_changes({}, [partition])
    added = [segment(partition, 100 * n, 100 * n + 99, {3: 100 * n})
             for n in range(count, count + EVENTS)]

    add = await timed(EVENTS, lambda n: leader.add_remote_log_segment_metadata(added[n]))
    finish = await timed(EVENTS, lambda n: leader.update_remote_log_segment_metadata(
        update(added[n], COPY_FINISHED)))
    find = await timed(EVENTS, lambda n: follower.remote_log_segment_metadata(
        partition, 3, (n * 7919 * 100) % (100 * count)))
    for state in (DELETE_STARTED, DELETE_FINISHED):
        remove = await timed(EVENTS, lambda n, state=state: (  # type: ignore[misc]
            leader.update_remote_log_segment_metadata(update(added[n], state))))
    print(f"{name:9} {count:7} segments  add {add:6.0f} us  finish {finish:6.0f} us  "
          f"delete {remove:6.0f} us  follower's lookup {find:6.0f} us  "
          f"takeover {load * 1000:6.0f} ms", flush=True)


async def main(count: int) -> None:
    server = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for size in (100, count):
                for name, backend in (
                        ("memory", MemoryBackend()),
                        ("sqlite", SqliteBackend(f"{folder}/{size}.sqlite")),
                        ("postgres", PostgresBackend(server.url, SystemRng()))):
                    await measure(name, backend, size)
                    await backend.close()
    finally:
        server.stop()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
