"""Carries out a log's search by timestamp; large batches are decompressed in a thread.

Not here: how a search goes over segments (storage/segments/timestamps.py).
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from quipu.broker.partitions.heavy_batches import is_heavy
from quipu.model.partition_log import RunLong, TimestampAndOffset
from quipu.storage.segments.timestamps import Search
from quipu.wire.records import TimeFound

if TYPE_CHECKING:  # it calls this
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition


async def carry_out(
    partition: "ReplicatedPartition", search: Search, run_long: RunLong
) -> TimestampAndOffset | None:
    """The result of `search`; other tasks run between its steps.

    Batches that would exceed max.decompressed.message.bytes are not decompressed.
    """
    size_max = partition.rules.decompressed_size_max
    outcome: TimeFound | None = None
    while True:
        try:
            look = search.send(outcome)
        except StopIteration as stop:
            found: TimestampAndOffset | None = stop.value
            return found
        if look is not None and is_heavy(len(look.batch.data), look.size_max):
            outcome = await run_long(partial(look.run, size_max))
        else:
            outcome = None if look is None else look.run(size_max)
            await asyncio.sleep(0)
