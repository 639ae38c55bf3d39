"""Receives the requests of all nodes to the controller, its own included, and calls their handlers.

Every node has a server; it serves requests while its node is the controller.

Invariants
    broker.cluster.K1  a node can only act for itself: a request that names another node is refused
    broker.cluster.K2  a node that is not registered may only register

Not here: the way from a node to the controller (controller_channel.py), what is decided
(controller.py, liveness.py).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.decision_queue import not_controller
from quipu.broker.cluster.requests import (
    CONTROLLER_APIS,
    BrokerRegistrationRequest,
    decode_request,
    encode_response,
)
from quipu.broker.quorum.contract import NotController
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId, RaftIndex
from quipu.runtime.peers.peer_net import PeerNet
from quipu.wire.schema import Message

CALL_KIND: Final = 1  # the kind of calls between nodes that go to the controller

ControllerRequest = TypeVar("ControllerRequest", bound=Message)
RequestHandler = Callable[[NodeId, ControllerRequest], Awaitable[Message]]  # sender, request


class Handled(NamedTuple):
    """A response, and the index up to which the metadata must be applied to see its effect."""

    response: Message
    applied_index: RaftIndex


class ControllerServer:
    """Calls the handlers of requests to the controller."""

    def __init__(self, quorum: Consensus, *, is_registered: Callable[[NodeId], bool]) -> None:
        self._quorum = quorum
        self._is_registered = is_registered
        self._handlers: dict[int, RequestHandler[Any]] = {}

    def on(
        self, request: type[ControllerRequest], handler: RequestHandler[ControllerRequest]
    ) -> None:
        """Call `handler` for requests of this type."""
        assert request.KEY in CONTROLLER_APIS, request
        self._handlers[request.KEY] = handler

    def listen(self, net: PeerNet) -> None:
        """Receive requests of other nodes."""
        net.serve(CALL_KIND, self._serve)

    async def handle(self, sender: NodeId, request: Message) -> Handled:
        """Call the handler; raises NotController if this node is not the controller."""
        if not self._quorum.is_leader:  # its metadata may be outdated, so it must not refuse
            raise not_controller(self._quorum.leader)
        self._check(sender, request)
        handler = self._handlers.get(request.KEY)
        if handler is None:
            raise NotController("this controller is still starting")
        response = await handler(sender, request)
        assert type(response) is CONTROLLER_APIS[request.KEY].response, response
        return Handled(response, self._quorum.last_applied)

    def _check(self, sender: NodeId, request: Message) -> None:
        """Raise if `sender` may not send `request` (broker.cluster.K1, broker.cluster.K2)."""
        named = getattr(request, "node_id", sender)
        if named != sender:
            raise RequestError(f"node {sender} cannot send a request for node {named}",
                               code=Code.INVALID_REQUEST)
        is_registration = isinstance(request, BrokerRegistrationRequest)
        if not is_registration and not self._is_registered(sender):
            raise RequestError(f"node {sender} is not registered: it may only register",
                               code=Code.BROKER_ID_NOT_REGISTERED)

    async def _serve(self, sender: NodeId, body: bytes) -> bytes:
        request, version = decode_request(body)
        response, index = await self.handle(sender, request)
        return encode_response(index, response, version)
