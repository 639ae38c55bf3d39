"""A client that moves partitions to random lists of nodes, and calls some of the moves off."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quipu.model.errors import Code
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import Client
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.traffic import RETRIED, Load
from quipu.sim.world import Violation
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

VERSION: Final = 1
# A list of which all nodes are down is refused, and so is a cancel if nothing moves any more.
REFUSED: Final = RETRIED | {
    Code.INVALID_REPLICA_ASSIGNMENT, Code.NO_REASSIGNMENT_IN_PROGRESS}


@dataclass(slots=True, eq=False)
class Mover:
    """Moves partitions until the load ends."""

    client: Client
    load: Load
    partitions: Sequence[TopicPartition]
    nodes: Sequence[int]
    length_min: int  # nodes of a list

    async def run(self) -> None:
        """Ask for a move now and then; several may be under way."""
        dice = self.client.dice
        while self.load.goes_on:
            await asyncio.sleep(dice.between(0.05, 0.8))
            length = self.length_min + dice.below(len(self.nodes) - self.length_min + 1)
            nodes = list(self.nodes)
            replicas = [nodes.pop(dice.below(len(nodes))) for _ in range(length)]
            partition = dice.choose(self.partitions)
            try:
                code = await self._move(partition, None if dice.flip(0.15) else replicas)
            except SimDisconnected:
                continue
            if code not in REFUSED and code is not Code.NONE:
                raise Violation(f"{self.client.name}: {code.name} for a move to {replicas}")

    async def _move(self, partition: TopicPartition, replicas: list[int] | None) -> Code:
        topic, index = partition
        answer = await self.client.ask(
            self.client.strangers(), AlterPartitionReassignmentsRequest(timeout=2000, topics=[
                ReassignableTopic(name=topic, partitions=[ReassignablePartition(
                    partition_index=index, replicas=replicas)])]), VERSION)
        code = Code(answer.error_code)
        if code is Code.NONE:
            code = Code(answer.responses[0].partitions[0].error_code)
        self.client.world.record("move", f"{topic}-{index} to {replicas}: {code.name}")
        return code
