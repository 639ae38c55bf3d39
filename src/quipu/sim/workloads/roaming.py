"""Clients of diskless topics, which any broker serves: they move from one to another.

    RoamingConsumer   reads one partition, from one broker after another
    roam              makes clients forget now and then which broker they use

A broker that has not heard of a commit of another one may return an older high watermark than the
broker that a client used before.  But what one process of a broker returns never falls, and it is
never below what the client has read.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from quipu.sim.dice import Dice
from quipu.sim.workloads.client import BrokerAddress, Client
from quipu.sim.workloads.history import TopicPartition
from quipu.sim.workloads.traffic import Consumer
from quipu.sim.world import Violation


@dataclass(slots=True, eq=False)
class RoamingConsumer(Consumer):
    """Reads one partition from its start, from any broker."""

    boots: Callable[[str], int] = lambda _host: 0  # which process of a broker runs now
    ends: dict[tuple[str, int], int] = field(default_factory=dict)  # high watermarks, by process

    def _check_end(self, place: BrokerAddress, part: Any) -> None:  # noqa: ANN401
        process = (place.host, self.boots(place.host))
        before = self.ends.get(process, 0)
        if part.high_watermark < max(before, self.position):
            raise Violation(f"end-fell: {self.client.name} got from {place.host} that "
                            f"{self.partition} ends at {part.high_watermark}; there it was "
                            f"{before}, and read to {self.position}")
        self.ends[process] = part.high_watermark
        self.high_watermark = max(self.high_watermark, part.high_watermark)


async def roam(
    clients: Sequence[tuple[Client, TopicPartition]], dice: Dice, goes_on: Callable[[], bool]
) -> None:
    """Let one client after the other look for a broker again."""
    while goes_on():
        await asyncio.sleep(dice.between(0.05, 0.4))
        client, partition = dice.choose(clients)
        client.forget_leader(*partition)
