"""Decisions: made on the active controller, one at a time, and answered when they hold.

    request -> decision (controller) -> quorum -> Machine.apply -> listeners -> answer

Invariants
    M1  decisions are made one at a time, each on the state that holds all earlier ones
    M2  nothing is applied, told or answered before a quorum has it durably
    M3  a decision, once proposed, is applied even if whoever asked for it has gone
    M4  an answer that changes nothing is given only by a node that surely led when it was asked:
        a deposed controller tells nobody what it believes to know
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.telling import Telling
from quipu.broker.quorum.contract import NotController
from quipu.controller.decision import Decision
from quipu.controller.records import encode_record
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId
from quipu.runtime.spawn import spawn

Answer = TypeVar("Answer")


class Decisions:
    """The order of decisions on this node, while it is the controller."""

    def __init__(self, quorum: Consensus, telling: Telling) -> None:
        self._quorum = quorum
        self._telling = telling
        self._lock = asyncio.Lock()  # M1

    async def carry_out(
        self,
        decide: Callable[[], Decision[Answer]],
        *,
        validate_only: bool = False,
        confirm: bool = True,
    ) -> list[Answer]:
        """Run one decision to its end, whatever becomes of the caller (M3).

        `confirm` is false for what the controller asks itself: nobody relies on the answer (M4).
        """
        outcome = await asyncio.shield(spawn(
            self._outcome(decide, write=not validate_only, confirm=confirm), "decision"))
        if isinstance(outcome, QuipuError):
            raise outcome
        answers: list[Answer] = outcome
        return answers

    async def _outcome(
        self, decide: Callable[[], Decision[Answer]], *, write: bool, confirm: bool
    ) -> list[Answer] | QuipuError:
        """A refusal is an outcome like any other: it is the caller's, if there still is one."""
        try:
            return await self._run(decide, write=write, confirm=confirm)
        except QuipuError as error:
            return error

    async def _run(
        self, decide: Callable[[], Decision[Answer]], *, write: bool, confirm: bool
    ) -> list[Answer]:
        async with self._lock:  # M1
            if not self._quorum.is_leader:
                raise not_controller(self._quorum.leader)
            decision = decide()
            if decision.records and write:
                await self._quorum.propose([encode_record(record) for record in decision.records])
                await self._telling.settled()  # M2
                return decision.answers
        if confirm:
            await self._quorum.barrier()  # M4
        return decision.answers


def not_controller(leader: NodeId | None) -> NotController:
    who = "none is known" if leader is None else f"node {leader} is"
    return NotController(f"this node is not the controller; {who}")
