"""A program that commits objects, each with batches of two logs, until it is killed.

    python writer.py URL TOPIC_ID    prints a number as soon as that object is committed
"""

import asyncio
import sys
from uuid import UUID

from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.values import BatchCoordinates, LogKey, NewObject
from quipu.model.ids import NodeId, ProducerId, TimestampMs
from quipu.runtime.rng import SystemRng


async def main(url: str, topic_id: UUID) -> None:
    plane = open_control_plane(url, rng=SystemRng())
    await plane.open()
    for number in range(1_000_000):
        batches = [BatchCoordinates(LogKey(topic_id, partition), 100 * partition, 100, 2,
                                    TimestampMs(number), ProducerId(1), 0, number * 2)
                   for partition in (0, 1)]
        await plane.commit(NewObject(f"{topic_id}-{number:09d}", NodeId(1), 250, batches), number)
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], UUID(sys.argv[2])))
