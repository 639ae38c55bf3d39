"""Request and answer on top of messages: who waits for what, and for how long.

    CALL    id u64 | kind u16 | body
    REPLY   id u64 | code i16 | error kind u8 | body, or the error's message if there is a code

An answer goes back on the connection that its request came on.  Used by every `PeerNet`, real or
simulated: nothing here knows a socket.

Invariants
    R1  a call ends: with its answer, with the peer's error, when the peer goes down, or in time
    R2  at most WAITING_MAX calls wait here, and SERVED_MAX of one peer are worked on
    R3  an answer that nobody waits for is ignored: its call has ended already
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from quipu.model.errors import Code, Kind, MalformedBytes, QuipuError
from quipu.model.ids import NodeId
from quipu.runtime.connection import Buffer
from quipu.runtime.peer_net import CallHandler, PeerError, PeerKind, PeerUnavailable
from quipu.runtime.spawn import spawn

WAITING_MAX: Final = 10_000
SERVED_MAX: Final = 1_000
MESSAGE_SIZE_MAX: Final = 4096  # of an error's words
CALL_KIND_MAX: Final = 0xFFFF

_CALL: Final = Struct(">QH")
_REPLY: Final = Struct(">QhB")
_KINDS: Final = tuple(Kind)  # stored as their place here
_log = logging.getLogger(__name__)

Send = Callable[[NodeId, int, list[Buffer]], bool]
Answer = Callable[[list[Buffer]], object]


@dataclass(slots=True)
class _Waiting:
    to: NodeId
    answered: "asyncio.Future[bytes]"


class Calls:
    """The calls that this node makes, and those that it answers."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._handlers: dict[int, CallHandler] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._served: Counter[NodeId] = Counter()
        self._next_id = 1

    # -- asking

    async def call(
        self, to: NodeId, kind: int, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        """The peer's answer, or one of the errors of `PeerNet.call` (R1)."""
        assert 0 <= kind <= CALL_KIND_MAX, kind
        if len(self._waiting) >= WAITING_MAX:
            raise PeerUnavailable(f"{WAITING_MAX} calls to other nodes wait for their answers")
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
                f"node {to} did not answer within {timeout_seconds:g} s") from None
        finally:
            self._waiting.pop(call_id, None)

    def on_reply(self, sender: NodeId, body: memoryview) -> None:
        """A REPLY has come."""
        if len(body) < _REPLY.size:
            raise MalformedBytes(f"an answer of {len(body)} bytes")
        call_id, code, kind = _REPLY.unpack_from(body)
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.to != sender or waiting.answered.done():
            return  # R3
        rest = bytes(body[_REPLY.size :])
        if code == Code.NONE:
            waiting.answered.set_result(rest)
        else:
            waiting.answered.set_exception(_error(code, kind, rest))

    def lost(self, node_id: NodeId) -> None:
        """The way to `node_id` is gone: nobody needs to wait for it (R1)."""
        for waiting in self._waiting.values():
            if waiting.to == node_id and not waiting.answered.done():
                waiting.answered.set_exception(
                    PeerUnavailable(f"the connection to node {node_id} was lost"))

    def close(self) -> None:
        """End every call that waits (R1)."""
        for waiting in self._waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(PeerUnavailable("this node is stopping"))

    # -- answering

    def serve(self, kind: int, handler: CallHandler) -> None:
        """Answer calls of `kind`."""
        assert 0 <= kind <= CALL_KIND_MAX, kind
        assert kind not in self._handlers, f"calls of kind {kind} have a handler"
        self._handlers[kind] = handler

    def on_call(self, sender: NodeId, body: memoryview, answer: Answer) -> None:
        """A CALL has come; `answer` sends the body of a REPLY to where it came from."""
        if len(body) < _CALL.size:
            raise MalformedBytes(f"a call of {len(body)} bytes")
        call_id, kind = _CALL.unpack_from(body)
        handler = self._handlers.get(kind)
        if handler is None:
            why = f"calls of kind {kind} are not answered here; is this node of another version?"
            answer(_refusal(call_id, QuipuError(why, code=Code.UNSUPPORTED_VERSION)))
        elif self._served[sender] >= SERVED_MAX:  # R2
            why = f"{SERVED_MAX} calls of node {sender} are under way"
            answer(_refusal(call_id, PeerUnavailable(why)))
        else:
            self._served[sender] += 1
            request = bytes(body[_CALL.size :])
            spawn(self._serve(sender, call_id, (handler, request), answer), f"call {kind}")

    async def _serve(
        self, sender: NodeId, call_id: int, work: tuple[CallHandler, bytes], answer: Answer
    ) -> None:
        handler, request = work
        try:
            result = await handler(sender, request)
            buffers: list[Buffer] = [_REPLY.pack(call_id, Code.NONE, 0), result]
        except QuipuError as error:
            buffers = _refusal(call_id, error)
        except Exception as error:  # noqa: BLE001 a bug must not keep its caller waiting
            _log.exception("a call of node %d failed", sender)
            buffers = _refusal(call_id, QuipuError(f"{type(error).__name__}: {error}",
                                                   kind=Kind.BUG))
        finally:
            self._served[sender] -= 1
            if not self._served[sender]:
                del self._served[sender]
        answer(buffers)


def _refusal(call_id: int, error: QuipuError) -> list[Buffer]:
    code = error.code if error.code != Code.NONE else Code.UNKNOWN_SERVER_ERROR
    words = str(error).encode()[:MESSAGE_SIZE_MAX]
    return [_REPLY.pack(call_id, code, _KINDS.index(error.kind)), words]


def _error(code: int, kind: int, words: bytes) -> PeerError:
    """The error that the peer meant; what this version does not know becomes the general one."""
    known = Code(code) if code in Code.__members__.values() else Code.UNKNOWN_SERVER_ERROR
    return PeerError(words.decode(errors="replace"), code=known,
                     kind=_KINDS[kind] if kind < len(_KINDS) else Kind.INVALID)
