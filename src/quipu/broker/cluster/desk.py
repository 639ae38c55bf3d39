"""The controller's desk: where requests of all nodes, its own included, arrive and are answered.

Every node has a desk; it is open while the node is the controller.

Invariants
    K1  a node speaks for itself alone: a request that names another node is refused
    K2  one that is not registered may only register
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.decisions import not_controller
from quipu.broker.cluster.requests import PAIRS, RegisterBroker, decode_call, encode_answer
from quipu.broker.quorum.contract import NotController
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from quipu.runtime.peer_net import PeerNet
from quipu.wire.schema import Message

CALL_KIND: Final = 1  # of calls between nodes: those to the controller

Asked = TypeVar("Asked", bound=Message)
Handler = Callable[[NodeId, Asked], Awaitable[Message]]  # who asks, and what


class Desk:
    """Who answers which request."""

    def __init__(self, quorum: Consensus, *, is_registered: Callable[[NodeId], bool]) -> None:
        self._quorum = quorum
        self._is_registered = is_registered
        self._handlers: dict[int, Handler[Any]] = {}

    def on(self, request: type[Asked], handler: Handler[Asked]) -> None:
        """Have `handler` answer requests of this type."""
        assert request.KEY in PAIRS, request
        self._handlers[request.KEY] = handler

    def open(self, net: PeerNet) -> None:
        """Answer other nodes."""
        net.serve(CALL_KIND, self._serve)

    async def answer(self, sender: NodeId, request: Message) -> Message:
        """Raises NotController if this node is not the controller, or no longer."""
        if not self._quorum.is_leader:
            raise not_controller(self._quorum.leader)
        handler = self._handlers.get(request.KEY)
        if handler is None:
            raise NotController("this controller is still starting")
        answer = await handler(sender, request)
        assert type(answer) is PAIRS[request.KEY].answer, answer
        return answer

    def _check(self, sender: NodeId, request: Message) -> None:
        """Refuse what another node must not ask for (K1, K2)."""
        named = getattr(request, "node_id", sender)
        if named != sender:
            raise RequestError(f"node {sender} cannot speak for node {named}",
                               code=Code.INVALID_REQUEST)
        if not isinstance(request, RegisterBroker) and not self._is_registered(sender):
            raise RequestError(f"node {sender} is not registered: it may only register",
                               code=Code.BROKER_ID_NOT_REGISTERED)

    async def _serve(self, sender: NodeId, body: bytes) -> bytes:
        request, version = decode_call(body)
        if self._quorum.is_leader:  # whoever is not knows too little to refuse
            self._check(sender, request)
        answer = await self.answer(sender, request)
        return encode_answer(self._quorum.applied, answer, version)
