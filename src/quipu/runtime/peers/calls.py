"""Calls between nodes: requests that wait for a reply, on top of messages.

    CALL    id u64 | kind u16 | body
    REPLY   id u64 | number i16 | error kind u8 | body, or the error's message if the number
                                                  is not 0; the called node defines the numbers

A reply is sent on the connection on which its call arrived.  Every `PeerNet`, real or simulated,
uses this module; it knows no sockets.

Invariants
    runtime.R1  every call ends: with its reply, with the peer's error, when the connection is lost,
                or by its timeout
    runtime.R2  at most WAITING_MAX calls of this node wait, and SERVED_MAX calls of one peer run
    runtime.R3  a reply to a call that has ended is ignored
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from quipu.model.errors import ErrorKind, MalformedBytes, QuipuError
from quipu.model.ids import NodeId
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers.peer_net import (
    UNNUMBERED,
    CallHandler,
    PeerError,
    PeerKind,
    PeerUnavailable,
    UnknownCall,
)
from quipu.runtime.spawn import spawn

WAITING_MAX: Final = 10_000
SERVED_MAX: Final = 1_000
MESSAGE_SIZE_MAX: Final = 4096  # bytes of an error's message
CALL_KIND_MAX: Final = 0xFFFF

_CALL: Final = Struct(">QH")
_REPLY: Final = Struct(">QhB")
_NO_ERROR: Final = 0
_KINDS: Final = tuple(ErrorKind)  # sent as the index in this tuple
_log = logging.getLogger(__name__)

Send = Callable[[NodeId, int, list[Buffer]], bool]
Respond = Callable[[list[Buffer]], object]


@dataclass(slots=True)
class _Waiting:
    to: NodeId
    answered: "asyncio.Future[bytes]"


class Calls:
    """The calls that this node makes, and those that it serves."""

    def __init__(self, send: Send, number_of: Callable[[QuipuError], int]) -> None:
        self._send = send
        self._number_of = number_of
        self._handlers: dict[int, CallHandler] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._served: Counter[NodeId] = Counter()
        self._next_id = 1

    # -- calling

    async def call(
        self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        """The peer's reply; raises the errors of `PeerNet.call` (runtime.R1)."""
        assert 0 <= kind <= CALL_KIND_MAX, kind
        if len(self._waiting) >= WAITING_MAX:
            raise PeerUnavailable(f"{WAITING_MAX} calls to other nodes are waiting for replies")
        call_id, self._next_id = self._next_id, self._next_id + 1
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = _Waiting(to, answered)
        try:
            if not self._send(to, PeerKind.CALL, [_CALL.pack(call_id, kind), body]):
                raise PeerUnavailable(f"node {to} cannot be reached now")
            async with asyncio.timeout(timeout_seconds):
                return await answered
        except TimeoutError:
            raise PeerUnavailable(
                f"node {to} did not reply within {timeout_seconds:g} s") from None
        finally:
            self._waiting.pop(call_id, None)

    def on_reply(self, sender: NodeId, body: memoryview) -> None:
        """Handle a REPLY from `sender`."""
        if len(body) < _REPLY.size:
            raise MalformedBytes(f"a reply of {len(body)} bytes")
        call_id, number, kind = _REPLY.unpack_from(body)
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.to != sender or waiting.answered.done():
            return  # runtime.R3
        rest = bytes(body[_REPLY.size :])
        if number == _NO_ERROR:
            waiting.answered.set_result(rest)
        else:
            waiting.answered.set_exception(_error(number, kind, rest))

    def lost(self, node_id: NodeId) -> None:
        """Fail the calls to `node_id`: the connection to it was lost (runtime.R1)."""
        for waiting in self._waiting.values():
            if waiting.to == node_id and not waiting.answered.done():
                waiting.answered.set_exception(
                    PeerUnavailable(f"the connection to node {node_id} was lost"))

    def close(self) -> None:
        """Fail every waiting call (runtime.R1)."""
        for waiting in self._waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(PeerUnavailable("this node is stopping"))

    # -- serving

    def serve(self, kind: int, handler: CallHandler) -> None:
        """Have `handler` serve calls of `kind`."""
        assert 0 <= kind <= CALL_KIND_MAX, kind
        assert kind not in self._handlers, f"calls of kind {kind} have a handler"
        self._handlers[kind] = handler

    def on_call(self, sender: NodeId, body: memoryview, respond: Respond) -> None:
        """Handle a CALL; `respond` sends the body of a REPLY to its sender."""
        if len(body) < _CALL.size:
            raise MalformedBytes(f"a call of {len(body)} bytes")
        call_id, kind = _CALL.unpack_from(body)
        handler = self._handlers.get(kind)
        if handler is None:
            why = f"calls of kind {kind} are unknown here; does this node run another version?"
            respond(self._refusal(call_id, UnknownCall(why)))
        elif self._served[sender] >= SERVED_MAX:  # runtime.R2
            why = f"{SERVED_MAX} calls of node {sender} are running"
            respond(self._refusal(call_id, PeerUnavailable(why)))
        else:
            self._served[sender] += 1
            request = bytes(body[_CALL.size :])
            spawn(self._serve(sender, call_id, (handler, request), respond), f"call {kind}")

    async def _serve(
        self, sender: NodeId, call_id: int, work: tuple[CallHandler, bytes], respond: Respond
    ) -> None:
        handler, request = work
        try:
            result = await handler(sender, request)
            buffers: list[Buffer] = [_REPLY.pack(call_id, _NO_ERROR, 0), result]
        except QuipuError as error:
            buffers = self._refusal(call_id, error)
        except Exception as error:  # noqa: BLE001 a bug must not keep its caller waiting
            _log.exception("a call of node %d failed", sender)
            bug = QuipuError(f"{type(error).__name__}: {error}", kind=ErrorKind.BUG)
            buffers = self._refusal(call_id, bug)
        finally:
            self._served[sender] -= 1
            if not self._served[sender]:
                del self._served[sender]
        respond(buffers)


    def _refusal(self, call_id: int, error: QuipuError) -> list[Buffer]:
        number = self._number_of(error) or UNNUMBERED  # 0 means no error
        message = str(error).encode()[:MESSAGE_SIZE_MAX]
        return [_REPLY.pack(call_id, number, _KINDS.index(error.kind)), message]


def _error(number: int, kind: int, message: bytes) -> PeerError:
    """The error that the peer sent; a kind that this version does not know becomes INVALID."""
    return PeerError(message.decode(errors="replace"), number=number,
                     kind=_KINDS[kind] if kind < len(_KINDS) else ErrorKind.INVALID)
