"""Those who wait for something to be decided, confirmed or applied.

Whoever waits is answered once: by what it waited for, or by the reason why that will not come.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from quipu.model.ids import NodeId, RaftIndex, Term

Result = TypeVar("Result")
WAITING_MAX: Final = 100_000  # proposals at a time


class _Proposal(NamedTuple):
    term: Term
    future: asyncio.Future[RaftIndex]


class Waiting:
    """Everyone who waits at one node."""

    def __init__(self) -> None:
        self._proposals: dict[RaftIndex, _Proposal] = {}
        self._reads: dict[int, asyncio.Future[RaftIndex]] = {}
        self._applied: list[tuple[RaftIndex, int, asyncio.Future[None]]] = []  # a heap
        self._asked = 0
        self._leader: list[asyncio.Future[NodeId]] = []

    @property
    def is_full(self) -> bool:
        return len(self._proposals) >= WAITING_MAX

    # --- waiting ----------------------------------------------------------------------------

    def proposed(self, index: RaftIndex, term: Term) -> asyncio.Future[RaftIndex]:
        """For the entry at `index` to be applied, if it is still that of `term` then."""
        future: asyncio.Future[RaftIndex] = asyncio.get_running_loop().create_future()
        self._proposals[index] = _Proposal(term, future)
        return future

    def read(self, number: int) -> asyncio.Future[RaftIndex]:
        future: asyncio.Future[RaftIndex] = asyncio.get_running_loop().create_future()
        self._reads[number] = future
        return future

    def applied(self, index: RaftIndex) -> asyncio.Future[None]:
        """For everything up to `index` to be applied."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked += 1
        heapq.heappush(self._applied, (index, self._asked, future))
        return future

    def leader(self) -> asyncio.Future[NodeId]:
        future: asyncio.Future[NodeId] = asyncio.get_running_loop().create_future()
        self._leader = [waiting for waiting in self._leader if not waiting.done()]
        self._leader.append(future)
        return future

    # --- answers ----------------------------------------------------------------------------

    def tell_decided(self, index: RaftIndex, term: Term, lost: Callable[[], Exception]) -> None:
        """The entry at `index`, which is of `term`, is applied."""
        proposal = self._proposals.pop(index, None)
        if proposal is None or proposal.future.done():
            return
        if proposal.term == term:
            proposal.future.set_result(index)
        else:
            proposal.future.set_exception(lost())

    def tell_applied(self, index: RaftIndex) -> None:
        """All up to `index` is applied."""
        while self._applied and self._applied[0][0] <= index:
            _settle(heapq.heappop(self._applied)[2], None)

    def tell_read(self, number: int, index: RaftIndex) -> None:
        _settle(self._reads.pop(number, None), index)

    def tell_leader(self, leader: NodeId) -> None:
        waiting, self._leader = self._leader, []
        for future in waiting:
            _settle(future, leader)

    def fail_decisions(self, error: Callable[[], Exception]) -> None:
        """What was proposed, and what was read, will not be answered."""
        futures = [proposal.future for proposal in self._proposals.values()]
        futures += self._reads.values()
        self._proposals, self._reads = {}, {}
        for future in futures:
            _fail(future, error())

    def fail_all(self, error: Callable[[], Exception]) -> None:
        self.fail_decisions(error)
        waiting = [future for _, _, future in self._applied]
        self._applied = []
        for applied in waiting:
            _fail(applied, error())
        for future in self._leader:
            _fail(future, error())
        self._leader = []


def _settle(future: asyncio.Future[Result] | None, result: Result) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever waited may have gone
