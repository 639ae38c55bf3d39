"""The way to the controller, wherever it is: this node, another one, or one yet to be elected.

Invariants
    K1  an answer is given when this node has applied what it is about: whoever asks next, here,
        finds it
    K2  a request is sent again when its controller is gone, until its time is up.  It may have
        been carried out before: requests are such that twice is as good as once, or the second
        answer says that it was done
    K3  a request ends in time, with an answer or an error
"""

import asyncio
from typing import Any, Final, TypeVar

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.desk import CALL_KIND, Desk
from quipu.broker.cluster.requests import decode_answer, encode_call
from quipu.broker.cluster.telling import Telling
from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.model.ids import NodeId, RaftIndex
from quipu.runtime.peer_net import PeerNet, PeerUnavailable
from quipu.wire.schema import Message

PAUSE_SECONDS: Final = 0.05  # before a request is sent again
CALL_SECONDS_MAX: Final = 10.0  # for one answer; then the controller is looked for again

Answered = TypeVar("Answered", bound=Message)


class ControllerLink:
    """Asks the controller."""

    def __init__(
        self, node_id: NodeId, quorum: Consensus, desk: Desk, telling: Telling,
        *, net: PeerNet | None,
    ) -> None:
        self._node_id = node_id
        self._quorum = quorum
        self._desk = desk
        self._telling = telling
        self._net = net

    async def ask(
        self, request: Message, answer: type[Answered], *, timeout_seconds: float
    ) -> Answered:
        """The controller's answer; raises its error, or REQUEST_TIMED_OUT (K2, K3)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        problem: QuipuError = RequestError("no controller is known", code=Code.NOT_CONTROLLER)
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._ask_once(request, answer)
            except TimeoutError:
                break
            except QuipuError as error:
                if not _is_passing(error):
                    raise
                problem = error
            if loop.time() + PAUSE_SECONDS >= deadline:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        raise RequestError(f"the controller did not answer within {timeout_seconds:g} s: {problem}",
                           code=Code.REQUEST_TIMED_OUT, kind=Kind.RETRY)

    @property
    def is_hopeless(self) -> bool:
        """Is there no controller, and can this node tell that there will be none for now?

        Too few of those who elect one can be reached from here.
        """
        net, quorum = self._net, self._quorum
        if net is None or quorum.leader == self._node_id or (
                quorum.leader is not None and net.is_up(quorum.leader)):
            return False
        there = sum(net.is_up(voter) for voter in quorum.voters)  # this node itself always is
        return 2 * there <= len(quorum.voters)

    async def _ask_once(self, request: Message, answer: type[Answered]) -> Answered:
        leader = self._quorum.leader
        if leader == self._node_id or self._net is None:
            given: Any = await self._desk.answer(self._node_id, request)
        elif leader is None:
            raise RequestError("no controller is known", code=Code.NOT_CONTROLLER)
        else:
            reply = await self._net.call(
                leader, CALL_KIND, encode_call(request), timeout_seconds=CALL_SECONDS_MAX)
            index, given = decode_answer(reply, request)
            await self._reach(index)
        assert type(given) is answer, given
        return given

    async def _reach(self, index: RaftIndex) -> None:
        """Wait until what was decided has come here (K1)."""
        if self._quorum.applied < index:
            await self._quorum.wait_applied(index, CALL_SECONDS_MAX)
        await self._telling.settled()


def _is_passing(error: QuipuError) -> bool:
    """Is it worth to look for the controller again?"""
    return isinstance(error, PeerUnavailable) or error.code is Code.NOT_CONTROLLER
