"""Makes the decisions of the active controller, one at a time, and returns their results.

    request -> decision (controller/) -> quorum -> MetadataStateMachine.apply -> listeners -> result

Invariants
    broker.cluster.M1  decisions are made one at a time, each on a state with all earlier ones
                       applied
    broker.cluster.M2  no decision is applied, given to listeners or returned before it is durable
                       on a majority of the voters
    broker.cluster.M3  a decision, once proposed, is applied even if its caller is cancelled
    broker.cluster.M4  the result of a decision without records is returned only if this node still
                       led after the call: a deposed controller returns nothing from outdated state
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.metadata_listeners import MetadataListeners
from quipu.broker.quorum.contract import NotController
from quipu.controller.decision import Decision
from quipu.controller.records import encode_record
from quipu.model.ids import NodeId
from quipu.runtime.spawn import run_to_end

Result = TypeVar("Result")


class DecisionQueue:
    """Runs decisions in order on this node, while it is the controller."""

    def __init__(self, quorum: Consensus, listeners: MetadataListeners) -> None:
        self._quorum = quorum
        self._listeners = listeners
        self._lock = asyncio.Lock()  # broker.cluster.M1

    async def run(
        self,
        decide: Callable[[], Decision[Result]],
        *,
        validate_only: bool = False,
        confirm: bool = True,
    ) -> list[Result]:
        """Decide, make the records durable and apply them; returns the decision's results.

        It runs to its end even if the caller is cancelled (broker.cluster.M3).  With
        `validate_only` nothing is written.  `confirm` is False for the controller's own decisions:
        no other node uses their results, so broker.cluster.M4 is not needed.
        """
        return await run_to_end(
            self._decide(decide, write=not validate_only, confirm=confirm), "decision")

    async def _decide(
        self, decide: Callable[[], Decision[Result]], *, write: bool, confirm: bool
    ) -> list[Result]:
        async with self._lock:  # broker.cluster.M1
            if not self._quorum.is_leader:
                raise not_controller(self._quorum.leader)
            decision = decide()
            if decision.records and write:
                await self._quorum.propose([encode_record(record) for record in decision.records])
                await self._listeners.settled()  # broker.cluster.M2
                return decision.results
        if confirm:
            await self._quorum.barrier()  # broker.cluster.M4
        return decision.results


def not_controller(leader: NodeId | None) -> NotController:
    """The error of a node that does not lead and gets a request to the controller."""
    who = "none is known" if leader is None else f"node {leader} is"
    return NotController(f"this node is not the controller; {who}")
