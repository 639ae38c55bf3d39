"""Groups in a simulated world: they commit offsets and fetch them.

One client per group, without members.  Each commit is higher than the last one, so that a fetched
offset shows at once whether an acknowledged commit was lost: a group must resume from its last
acknowledged commit.
"""

import asyncio
from typing import Final

from quipu.model.errors import Code
from quipu.sim.twins.frames import SimDisconnected
from quipu.sim.workloads.client import BrokerAddress, Client
from quipu.sim.workloads.traffic import RETRIED, Load
from quipu.sim.world import Violation
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from quipu.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest

COMMIT_VERSION: Final = 7
FETCH_VERSION: Final = 5
FIND_VERSION: Final = 2
MOVED: Final = RETRIED | {Code.NOT_COORDINATOR, Code.UNKNOWN_TOPIC_OR_PARTITION}


class Bookmark:
    """A group that commits increasing offsets, and checks them."""

    def __init__(self, client: Client, load: Load) -> None:
        self.acked = -1  # the last commit that was acknowledged
        self.checked = 0
        self.is_done = False
        self._client = client
        self._load = load
        self._group = f"group-{client.name}"
        self._unknown: set[int] = set()  # commits without a response
        self._coordinator: BrokerAddress | None = None

    async def run(self) -> None:
        """Commit and check while there is load; then check once more."""
        dice, number = self._client.dice, 0
        while self._load.goes_on:
            if dice.flip(0.7):
                await self._commit(number)
                number += 1
            else:
                await self._check()
            await asyncio.sleep(dice.between(0.05, 0.3))
        while not await self._check():  # noqa: ASYNC110 virtual time; asks somebody each time
            await asyncio.sleep(0.1)
        self.is_done = True

    async def _commit(self, number: int) -> None:
        request = OffsetCommitRequest(group_id=self._group, topics=[OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(
                partition_index=0, committed_offset=number, committed_metadata="")])])
        self._unknown.add(number)
        try:
            answer = await self._client.ask(await self._find(), request, COMMIT_VERSION)
        except SimDisconnected:
            self._coordinator = None
            return
        code = answer.topics[0].partitions[0].error_code
        self._record("commit", number, code)
        if code == Code.NONE:
            self.acked = number
            self._unknown.discard(number)
        elif not self._is_moved(code):
            raise Violation(f"{self._group}: commit of {number}: {Code(code).name}")

    async def _check(self) -> bool:
        request = OffsetFetchRequest(group_id=self._group, topics=[
            OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        try:
            answer = await self._client.ask(await self._find(), request, FETCH_VERSION)
        except SimDisconnected:
            self._coordinator = None
            return False
        if self._is_moved(answer.error_code):
            return False
        part = answer.topics[0].partitions[0]
        if self._is_moved(part.error_code):
            return False
        self._record("resume", part.committed_offset, part.error_code)
        found = part.committed_offset
        if found < self.acked and found not in self._unknown:
            raise Violation(f"resumes-from-commit: {self._group} is at {found}, "
                            f"acknowledged was {self.acked}")
        self.checked += 1
        return True

    def _is_moved(self, code: int) -> bool:
        if code in MOVED:
            self._coordinator = None
            return True
        return False

    def _record(self, what: str, number: int, code: int) -> None:
        world = self._client.world
        world.trace.add(world.loop.now, self._client.name, what, f"{number} {Code(code).name}")

    async def _find(self) -> BrokerAddress:
        """The coordinator of the group; requests it until there is a response."""
        while self._coordinator is None:
            try:
                answer = await self._client.ask(
                    self._client.strangers(),
                    FindCoordinatorRequest(key=self._group, key_type=0), FIND_VERSION)
            except SimDisconnected:
                continue
            if answer.error_code == Code.NONE:
                self._coordinator = BrokerAddress(answer.host, answer.port)
            else:
                await asyncio.sleep(self._client.dice.between(0.05, 0.3))
        return self._coordinator
