"""A client that deletes the first records of a partition, again and again."""

import asyncio
from dataclasses import dataclass
from typing import Final

from quipu.model.errors import Code
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import Client
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.traffic import RETRIED, Load
from quipu.sim.world import Violation
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

DELETE_VERSION: Final = 2
# The leader may not know yet that a record is committed, which a client has read elsewhere.
REFUSED: Final = RETRIED | {Code.OFFSET_OUT_OF_RANGE, Code.OFFSET_NOT_AVAILABLE}


@dataclass(slots=True, eq=False)
class RecordDeleter:
    """Moves the log start forward, never beyond what some client has seen."""

    client: Client
    load: Load
    partition: TopicPartition
    requested: int = 0  # the highest offset: records below may be gone

    async def run(self) -> None:
        """Delete some records now and then, until the load ends."""
        dice = self.client.dice
        while self.load.goes_on:
            await asyncio.sleep(dice.between(0.3, 1.5))
            end = self.load.history.end(self.partition)
            before = self.requested + dice.below(1 + max(0, end - self.requested) // 2)
            self.requested = max(self.requested, before)
            try:
                code = await self._delete(before)
            except SimDisconnected:
                code = Code.NETWORK_EXCEPTION
            if code != Code.NONE:
                if code not in REFUSED:
                    raise Violation(f"{self.client.name}: {code.name} for DeleteRecords")
                self.client.forget_leader(*self.partition)

    async def _delete(self, before: int) -> Code:
        topic, index = self.partition
        answer = await self.client.ask(
            await self.client.leader(topic, index), DeleteRecordsRequest(timeout=2000, topics=[
                DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(
                    partition_index=index, offset=before)])]), DELETE_VERSION)
        part = answer.topics[0].partitions[0]
        world, code = self.client.world, Code(part.error_code)
        world.trace.add(world.loop.now, self.client.name, "deleted",
                        f"{topic}-{index} {code.name} {part.low_watermark}")
        if code is Code.NONE and not before <= part.low_watermark <= self.requested:
            raise Violation(f"{self.client.name}: the log of {self.partition} starts at "
                            f"{part.low_watermark}; asked for was {before}, at most "
                            f"{self.requested}")
        return code
