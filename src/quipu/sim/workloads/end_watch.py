"""A client that requests the end of a partition repeatedly, and checks that it never falls.

    end-fell     a response below an offset that some client had read, had acknowledged or had got
                 as the end before the request
"""

import asyncio
from dataclasses import dataclass

from quipu.model.errors import Code
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import Client
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.traffic import LIST_OFFSETS_VERSION, RETRIED, Load
from quipu.sim.world import Violation
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST = -1


@dataclass(slots=True, eq=False)
class EndWatch:
    """Requests the latest offset of one partition from its leader."""

    client: Client
    load: Load
    partition: TopicPartition
    end: int = 0  # the highest end that was returned

    async def run(self) -> None:
        """Request and check for as long as the world runs."""
        while True:
            try:
                code = await self._ask()
            except SimDisconnected:
                code = Code.NETWORK_EXCEPTION
            if code not in (Code.NONE, Code.OFFSET_NOT_AVAILABLE):
                if code not in RETRIED:
                    raise Violation(f"{self.client.name}: {code.name} for ListOffsets")
                self.client.forget_leader(*self.partition)
            await asyncio.sleep(self.client.dice.between(0.02, 0.25))

    async def _ask(self) -> Code:
        topic, index = self.partition
        place = await self.client.leader(topic, index)
        least = max(self.end, self.load.history.end(self.partition))
        answer = await self.client.ask(place, ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=LATEST)])],
        ), LIST_OFFSETS_VERSION)
        part = answer.topics[0].partitions[0]
        world, code = self.client.world, Code(part.error_code)
        world.trace.add(world.loop.now, self.client.name, "end",
                        f"{topic}-{index} {code.name} {part.offset}")
        if code is Code.NONE:
            if part.offset < least:
                raise Violation(f"end-fell: {self.client.name} got from {place.host} that "
                                f"{self.partition} ends at {part.offset}; it was {least}")
            self.end = part.offset
        return code
