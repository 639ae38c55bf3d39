"""A quorum without Raft: one list of entries that all nodes see, and a rule for who leads.

It keeps the promises of broker/quorum, deposed leaders that do not know it yet included, so that
tests of the cluster's driver show what the driver does with them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from quipu.broker.quorum.contract import NotController, StateMachine
from quipu.model.ids import NodeId, RaftIndex
from quipu.sim.world import Machine, World

TICK_SECONDS: Final = 0.01
ELECTION_SECONDS: Final = 0.5
DECIDE_SECONDS: Final = 0.003


class Council:
    """What the nodes agree on."""

    def __init__(self, world: World, machines: dict[NodeId, Machine]) -> None:
        self.world = world
        self.machines = machines
        self.entries: list[Sequence[bytes]] = []
        self.image: tuple[int, list[bytes]] = (0, [])  # entries before are only in there
        self.leader: NodeId | None = None
        self.seats: dict[NodeId, Seat] = {}
        self.before_commit: Callable[[NodeId], None] | None = None
        self.after_commit: Callable[[NodeId], None] | None = None
        self._leaderless = 0.0
        world.run(self._run(), "council")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._elect()
            for node_id, seat in list(self.seats.items()):
                machine = self.machines[node_id]
                if machine.is_running and machine.process is not None:
                    self.world.loop.call_soon(seat.hear, context=machine.process.context)

    def _elect(self) -> None:
        if self.leader is not None and self.has_majority(self.leader):
            self._leaderless = 0.0
            return
        self._leaderless += TICK_SECONDS
        able = [node_id for node_id in self.seats if self.has_majority(node_id)]
        if self._leaderless >= ELECTION_SECONDS and able:
            self.leader = self.world.dice.choose(able)

    def has_majority(self, node_id: NodeId) -> bool:
        return 2 * sum(self.reaches(node_id, other) for other in self.machines) > len(self.machines)

    def reaches(self, one: NodeId, other: NodeId) -> bool:
        here, there = self.machines[one], self.machines[other]
        return (here.is_running and there.is_running and one in self.seats and other in self.seats
                and (one == other or self.world.net.is_open(here.name, there.name)))


class Seat:
    """One process's part in it; see `Consensus`."""

    def __init__(self, council: Council, node_id: NodeId, machine: StateMachine) -> None:
        self.leader: NodeId | None = None
        self.is_leader = False
        self.previous_leader = None  # nobody asks when the last leader was heard of
        self.last_applied = RaftIndex(0)
        self.refused_count = 0
        self._council = council
        self._node_id = node_id
        self._machine = machine

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return tuple(self._council.machines)

    async def start(self) -> None:
        self._council.seats[self._node_id] = self

    async def stop(self, *, transfer: bool = False) -> None:
        del transfer
        if self._council.leader == self._node_id:
            self._council.leader = None
        del self._council.seats[self._node_id]

    def hear(self) -> None:
        """What the leader has to say, if it can be heard."""
        council = self._council
        if council.leader is None or not council.reaches(self._node_id, council.leader):
            return
        self.leader = council.leader
        self._catch_up()
        leads = council.leader == self._node_id
        if leads != self.is_leader:
            self.is_leader = leads
            self._machine.leadership(leads)

    def _catch_up(self) -> None:
        start, items = self._council.image
        if self.last_applied < start:
            self._machine.restore(items)
            self.last_applied = RaftIndex(start)
        for commands in self._council.entries[self.last_applied :]:
            self.last_applied = RaftIndex(self.last_applied + 1)
            self._machine.apply(self.last_applied, commands)

    async def propose(self, commands: Sequence[bytes]) -> RaftIndex:
        await self.barrier()
        if self._council.before_commit is not None:
            self._council.before_commit(self._node_id)
            await asyncio.sleep(0)  # nodes that were just killed do not continue
        self._council.entries.append(commands)
        if self._council.after_commit is not None:
            self._council.after_commit(self._node_id)
        await asyncio.sleep(DECIDE_SECONDS)
        self._catch_up()
        return RaftIndex(self.last_applied)

    async def barrier(self) -> None:
        await asyncio.sleep(DECIDE_SECONDS)
        if self._council.leader != self._node_id or not self._council.has_majority(self._node_id):
            await asyncio.sleep(ELECTION_SECONDS)
            raise NotController("deposed")

    async def wait_applied(self, index: RaftIndex, timeout_seconds: float) -> None:
        async with asyncio.timeout(timeout_seconds):
            while self.last_applied < index:
                await asyncio.sleep(TICK_SECONDS)

    def shorten(self, items: Iterable[bytes]) -> None:
        """Have what is applied here kept as an image alone."""
        self._council.image = (self.last_applied, list(items))
