"""Copies segments in a process that has only URLs, such as an executor of Spark.

The stores are opened for one call and closed after it: a task lasts seconds, and leaves nothing.
Credentials come from this process's environment, as the store's library looks for them.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from quipu.diskless.tiering.copying import copy_segment
from quipu.diskless.tiering.plan import SegmentPlan
from quipu.model.errors import QuipuError
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.remote_storage import ObjectRemoteStorage
from quipu.remote.segments.writer import CopyOptions
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.objects.urls import open_store

T = TypeVar("T")


class CopyTask(NamedTuple):
    """A segment to copy, and where from and to."""

    plan: SegmentPlan
    objects_url: str  # of the diskless objects
    segments_url: str  # of the remote tier
    chunk_size: int
    compress: bool


class CopyResult(NamedTuple):
    """What has become of a task: custom metadata, or why there is none."""

    plan: SegmentPlan
    custom_metadata: bytes | None
    error: str = ""


async def in_thread(work: Callable[[], T], /) -> T:
    """Run blocking work in a thread of its own."""
    return await asyncio.to_thread(work)


def segment_storage(store: ObjectStore, *, chunk_size: int, compress: bool) -> ObjectRemoteStorage:
    """The remote tier in `store`, for a process that only writes to it."""
    return ObjectRemoteStorage(
        store, cache=ChunkCache(0), run=in_thread, clock=SystemClock(),
        options=CopyOptions(chunk_size=chunk_size, compress=compress))


def copy_task(task: CopyTask) -> CopyResult:
    """Copy one segment; an error is returned, so that it does not fail other tasks."""
    try:
        return asyncio.run(_copy(task))
    except QuipuError as error:
        return CopyResult(task.plan, None, f"{type(error).__name__}: {error}")


async def _copy(task: CopyTask) -> CopyResult:
    now_ms = SystemClock().now_ms
    objects = open_store(task.objects_url, now_ms)
    try:
        storage = segment_storage(open_store(task.segments_url, now_ms),
                                  chunk_size=task.chunk_size, compress=task.compress)
        try:
            custom = await copy_segment(task.plan, objects, storage, in_thread)
        finally:
            await storage.close()
    finally:
        await objects.close()
    return CopyResult(task.plan, custom)
