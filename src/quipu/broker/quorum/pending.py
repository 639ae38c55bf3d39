"""Futures of callers that wait for an entry to be committed, a read confirmed, an index applied.

Each future is resolved once: with its result, or with an error.
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


class PendingRequests:
    """The futures of one node's callers."""

    def __init__(self) -> None:
        self._proposals: dict[RaftIndex, _Proposal] = {}
        self._reads: dict[int, asyncio.Future[RaftIndex]] = {}
        self._applied: list[tuple[RaftIndex, int, asyncio.Future[None]]] = []  # a heap
        self._wait_number = 0
        self._leader: list[asyncio.Future[NodeId]] = []

    @property
    def is_full(self) -> bool:
        return len(self._proposals) >= WAITING_MAX

    # --- futures ----------------------------------------------------------------------------

    def proposed(self, index: RaftIndex, term: Term) -> asyncio.Future[RaftIndex]:
        """Return a future that is resolved when the entry at `index` is applied."""
        future: asyncio.Future[RaftIndex] = asyncio.get_running_loop().create_future()
        self._proposals[index] = _Proposal(term, future)
        return future

    def read(self, number: int) -> asyncio.Future[RaftIndex]:
        """Return a future of the index that read `number` has to see applied."""
        future: asyncio.Future[RaftIndex] = asyncio.get_running_loop().create_future()
        self._reads[number] = future
        return future

    def applied(self, index: RaftIndex) -> asyncio.Future[None]:
        """Return a future that is done when everything up to `index` is applied."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_number += 1
        heapq.heappush(self._applied, (index, self._wait_number, future))
        return future

    def leader(self) -> asyncio.Future[NodeId]:
        """Return a future of the next leader that this node learns of."""
        future: asyncio.Future[NodeId] = asyncio.get_running_loop().create_future()
        self._leader = [waiting for waiting in self._leader if not waiting.done()]
        self._leader.append(future)
        return future

    # --- results ----------------------------------------------------------------------------

    def entry_applied(self, index: RaftIndex, term: Term, lost: Callable[[], Exception]) -> None:
        """Resolve the proposal at `index`: done if the entry is of its term, else `lost`."""
        proposal = self._proposals.pop(index, None)
        if proposal is None or proposal.future.done():
            return
        if proposal.term == term:
            proposal.future.set_result(index)
        else:
            proposal.future.set_exception(lost())

    def applied_up_to(self, index: RaftIndex) -> None:
        """Resolve the waits for entries up to `index`, which are applied."""
        while self._applied and self._applied[0][0] <= index:
            _resolve(heapq.heappop(self._applied)[2], None)

    def read_confirmed(self, number: int, index: RaftIndex) -> None:
        """Resolve read `number`: it is linearizable in a state that has applied `index`."""
        _resolve(self._reads.pop(number, None), index)

    def leader_known(self, leader: NodeId) -> None:
        """Resolve the waits for a leader."""
        waiting, self._leader = self._leader, []
        for future in waiting:
            _resolve(future, leader)

    def fail_proposals_and_reads(self, error: Callable[[], Exception]) -> None:
        """Fail every proposal and read: this node has stepped down."""
        futures = [proposal.future for proposal in self._proposals.values()]
        futures += self._reads.values()
        self._proposals, self._reads = {}, {}
        for future in futures:
            _fail(future, error())

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Fail everything that waits: this node stops, or has failed."""
        self.fail_proposals_and_reads(error)
        waiting = [future for _, _, future in self._applied]
        self._applied = []
        for applied in waiting:
            _fail(applied, error())
        for future in self._leader:
            _fail(future, error())
        self._leader = []


def _resolve(future: asyncio.Future[Result] | None, result: Result) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # its caller may have gone
