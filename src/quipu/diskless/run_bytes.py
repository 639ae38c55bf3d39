"""Reads the bytes of many runs at once: runs of one object by one request, several at a time."""

import asyncio
from collections.abc import Sequence
from typing import Final

from quipu.diskless.values import BatchRun
from quipu.runtime.objects.store import RANGES_MAX, Buffer, ByteRange, ObjectStore

GETS_MAX: Final = 16  # requests to the store at the same time


async def read_runs(store: ObjectStore, runs: Sequence[BatchRun]) -> list[Buffer]:
    """The bytes of each run, as they are stored; raises the first error of the store."""
    by_key: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        by_key.setdefault(run.key, []).append(index)
    turns = asyncio.Semaphore(GETS_MAX)
    found: list[Buffer] = [b""] * len(runs)

    async def read(key: str, indexes: list[int]) -> None:
        async with turns:
            parts = await store.get_ranges(key, [
                ByteRange(runs[index].position, runs[index].position + runs[index].size)
                for index in indexes])
        for index, part in zip(indexes, parts, strict=True):
            found[index] = part

    await asyncio.gather(*(
        read(key, indexes[at : at + RANGES_MAX])
        for key, indexes in by_key.items() for at in range(0, len(indexes), RANGES_MAX)))
    return found
