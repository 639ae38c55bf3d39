"""Sends every request to the controller: this node, another one, or one yet to be elected.

    a node's own message, or a client's Kafka request in an envelope (serving/forwarding.py)
        -> ControllerChannel.ask     on any node: find the controller; retry if it has failed
        -> ControllerServer.handle   on the controller: check the sender, call the handler
        -> DecisionQueue.run         on the controller: decide in order, make durable, apply
        -> ControllerChannel.ask     wait until this node has applied it too, return the response

The controller's own requests take the same way; they only skip the network.

Invariants
    broker.cluster.K3  a response is returned after this node has applied the change and notified
                       its listeners: the next request to this node sees the effect
    broker.cluster.K4  a request is sent again if its controller has failed, until its timeout.  It
                       may have been carried out before: a topic or a chain that it created is
                       recognised, other requests are idempotent, or the second response says that
                       the change exists
    broker.cluster.K5  a request ends before its timeout, with a response or an error; what the
                       controller began is carried out to its end, on this node as on another
"""

import asyncio
from typing import Final, TypeVar

from quipu.broker.cluster.consensus import Consensus
from quipu.broker.cluster.controller_server import CALL_KIND, ControllerServer, Handled
from quipu.broker.cluster.metadata_listeners import MetadataListeners
from quipu.broker.cluster.requests import decode_response, encode_request
from quipu.broker.error_codes import code_of
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import NodeId, RaftIndex
from quipu.runtime.peers.peer_net import PeerNet, PeerUnavailable
from quipu.runtime.spawn import run_to_end
from quipu.wire.schema import Message

PAUSE_SECONDS: Final = 0.05  # before a request is sent again
APPLIED_SECONDS_MAX: Final = 10.0  # for the change to be applied here; then it is sent again

ControllerResponse = TypeVar("ControllerResponse", bound=Message)


class ControllerChannel:
    """Sends requests to the controller, wherever it is."""

    def __init__(
        self, node_id: NodeId, quorum: Consensus, server: ControllerServer,
        listeners: MetadataListeners, *, net: PeerNet | None,
    ) -> None:
        self._node_id = node_id
        self._quorum = quorum
        self._server = server
        self._listeners = listeners
        self._net = net

    async def ask(
        self, request: Message, response: type[ControllerResponse], *, timeout_seconds: float
    ) -> ControllerResponse:
        """The controller's response; raises its error, or REQUEST_TIMED_OUT."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        problem = "no controller is known"
        while True:
            try:
                async with asyncio.timeout_at(deadline):  # broker.cluster.K5
                    given, index = await self._deliver(request)
                    await self._apply_up_to(index)
            except TimeoutError:
                break
            except QuipuError as error:
                if not _is_controller_gone(error):
                    raise
                problem = str(error)  # broker.cluster.K4
            else:
                assert type(given) is response, given
                return given
            if loop.time() + PAUSE_SECONDS >= deadline:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        raise RequestError(f"no response of the controller within {timeout_seconds:g} s: {problem}",
                           code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY)

    @property
    def is_hopeless(self) -> bool:
        """Whether there is no controller, and too few voters can be reached to elect one."""
        net, quorum = self._net, self._quorum
        if net is None or quorum.leader == self._node_id or (
                quorum.leader is not None and net.is_up(quorum.leader)):
            return False
        reachable = sum(net.is_up(voter) for voter in quorum.voters)  # this node itself always is
        return 2 * reachable <= len(quorum.voters)

    async def _deliver(self, request: Message) -> Handled:
        """Send `request` to the controller, once."""
        leader = self._quorum.leader
        if leader == self._node_id or self._net is None:
            return await run_to_end(  # broker.cluster.K5
                self._server.handle(self._node_id, request), "request to the controller")
        if leader is None:
            raise RequestError("no controller is known", code=Code.NOT_CONTROLLER)
        reply = await self._net.call(leader, CALL_KIND, encode_request(request))
        return Handled(*decode_response(reply, request))

    async def _apply_up_to(self, index: RaftIndex) -> None:
        """Wait until `index` is applied here, and listeners are notified (broker.cluster.K3)."""
        if self._quorum.last_applied < index:
            await self._quorum.wait_applied(index, APPLIED_SECONDS_MAX)
        await self._listeners.settled()


def _is_controller_gone(error: QuipuError) -> bool:
    """Whether the request should be sent to the next controller."""
    return isinstance(error, PeerUnavailable) or code_of(error) is Code.NOT_CONTROLLER
