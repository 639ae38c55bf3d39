"""One client connection: handles its requests, and sends the responses in the same order.

Produce and Fetch have handlers that work on bytes; every other request is decoded, given to its
handler, and the response encoded.  Some requests are forwarded to the controller (forwarding.py).

Invariants
    broker.serving.Q1  responses leave in the order in which their requests came
    broker.serving.Q2  while a request other than Produce waits for its response, or a Produce for
                       the check of its records, later requests of the connection are not handled;
                       so a client sees the effects of its requests in order, as with Kafka
    broker.serving.Q3  at most IN_FLIGHT_MAX requests of a connection wait for their responses, and
                       from a client that does not receive its responses no more requests are read:
                       one connection holds bounded memory
    broker.serving.Q4  a node that is out of touch with the controller responds to Metadata, and
                       then closes the connection: a client without another connection would ask
                       this node again and again for the leaders
    broker.serving.Q5  if a client disconnects while its request waits for records or for other
                       members of a group, the wait ends at once; requests that change something
                       are carried out all the same
    broker.serving.Q6  requests take turns (runtime/turns.py): together they use the loop for a few
                       milliseconds at a time; at most LARGE_MAX large ones are served at a time,
                       and the bytes of those that wait are bounded.  Only Produce and Fetch of few
                       partitions are served without waiting for a turn

A request that cannot be decoded closes its connection, with a line in the log; other connections
are not affected.  A request that exceeds a limit gets an error, if its response has a field for it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, Final

from quipu.broker import handlers
from quipu.broker.error_codes import code_of
from quipu.broker.handlers import k00_produce, k01_fetch
from quipu.broker.handlers.k18_api_versions import unsupported_version_response
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.fetch_sessions import FetchClient
from quipu.broker.serving.request_queue import HUGE_SIZE, LARGE_SIZE
from quipu.broker.serving.response_budget import LARGE_RESPONSE_SIZE, ClientGone, ResponseBudget
from quipu.model.errors import MalformedBytes, QuipuError, TooManyElements
from quipu.model.listeners import ClientListener
from quipu.model.principals import ANONYMOUS, USER, Principal
from quipu.runtime.net.admission import address_key
from quipu.runtime.net.connection import Buffer
from quipu.runtime.net.limits import BAD_REQUEST
from quipu.runtime.net.network import FrameConnection
from quipu.runtime.spawn import spawn
from quipu.wire.frame import decode_request_header, encode_response, encode_response_body
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.schema import Response

IN_FLIGHT_MAX: Final = 100  # requests of one connection whose responses are not ready
BACKLOG_MAX: Final = 1000  # buffers of one connection that are not sent yet
DECODED_TURN_MAX: Final = 32  # decoded requests served in one turn; then other connections
SYNC_GROUP_SIZE_MAX: Final = 32 << 20  # it carries the assignments of all members

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
API_VERSIONS: Final = 18
MEMBER_KEYS: Final = frozenset({JOIN_GROUP, SYNC_GROUP})  # they wait for other members of a group
# These wait for as long as the client says.  If the client disconnects, its requests behind one of
# them are dropped.
LONG_WAITS: Final = frozenset({FETCH, *MEMBER_KEYS})

Message = Response | forwarding.ForwardedResponse
Decoded = tuple[forwarding.ClientRequest, TooManyElements | None]

_HEAD: Final = Struct(">hhi")  # api key, api version, correlation id


class TurnReply:
    """Responds to one request; sent after all earlier responses (broker.serving.Q1)."""

    __slots__ = ("_session", "api_key", "buffers", "release", "started")

    def __init__(self, session: "ClientSession", api_key: int, started: float) -> None:
        self._session = session
        self.api_key = api_key
        self.started = started
        self.buffers: list[Buffer] | None = None
        self.release: Callable[[], object] | None = None

    @property
    def listener(self) -> ClientListener:
        """The listener that the client connected to."""
        return self._session.listener

    @property
    def fetch_client(self) -> FetchClient:
        """The fetch sessions of this connection."""
        return self._session.fetch_client()

    def send(self, buffers: list[Buffer]) -> None:
        """Respond; an empty list is for requests that want no response."""
        assert self.buffers is None, "a request has one response"
        self.buffers = buffers
        self.release = None  # it refers to the handler's object, which refers to this one
        self._session.reply_ready(self)

    def send_large(self, buffers: list[Buffer], size: int) -> None:
        """Respond with buffers of which `size` bytes stay in memory until they are sent."""
        self._session.send_large(self, buffers, size)

    def hold(self, frame: memoryview) -> memoryview:
        """Handle no later request until `go_on`; returns the request's bytes, kept until then."""
        # broker.serving.Q2
        return self._session.block_and_keep(self, frame)

    def go_on(self) -> None:
        """Let later requests be handled: the effects of this one are visible."""
        self._session.unblock(self)

    def close(self, why: str) -> None:
        """Close the connection instead of responding."""
        self._session.refuse(why)

    def when_lost(self, release: Callable[[], object]) -> None:
        """Call `release` if the connection closes before the response (broker.serving.Q5)."""
        self.release = release


class ClientSession:
    """The requests and responses of one client connection."""

    __slots__ = (
        "_blocking", "_broker", "_connection", "_fetch_client", "_is_paused", "_leaving",
        "_loop_time", "_observe", "_replies", "listener", "principal",
    )

    def __init__(self, broker: Broker, connection: FrameConnection) -> None:
        self._broker = broker
        self._connection = connection
        self.listener = broker.listeners[connection.listener]
        name = connection.peer_name
        self.principal = ANONYMOUS if name is None else Principal(USER, name)
        self._loop_time = broker.clock.monotonic
        self._observe = broker.stats.observe_request
        self._fetch_client: FetchClient | None = None  # until it fetches
        self._replies: deque[TurnReply] = deque()
        self._is_paused = False  # no frames are received (broker.serving.Q2, broker.serving.Q3)
        self._blocking: TurnReply | None = None  # later requests wait for it (broker.serving.Q2)
        self._leaving: ResponseBudget | None = None  # of a large response that is being sent

    @property
    def peer(self) -> str:
        return f"{self._connection.peer_host}:{self._connection.peer_port}"

    def fetch_client(self) -> FetchClient:
        client = self._fetch_client
        if client is None:
            client = self._fetch_client = FetchClient(address_key(self._connection.peer_host))
        return client

    # -- called by the connection

    def frame_received(self, frame: memoryview) -> None:
        if len(frame) < _HEAD.size:
            self.refuse(f"a request of {len(frame)} bytes")
            return
        api_key, version, correlation_id = _HEAD.unpack_from(frame)
        reply = TurnReply(self, api_key, self._loop_time())
        self._replies.append(reply)
        try:
            if api_key == PRODUCE:
                k00_produce.produce(self._broker, reply, frame)
            elif api_key == FETCH:
                k01_fetch.fetch(self._broker, reply, frame)
            else:
                self._dispatch(reply, frame, version, correlation_id)
        except MalformedBytes as error:
            self.refuse(f"api {api_key} v{version}: {error}")
            return
        except Exception:  # noqa: BLE001 a bug in one request must not end the node
            self._broker.limited.exception(
                "request failed", "request api %d v%d of %s failed", api_key, version, self.peer)
            self._connection.close()
            return
        if self._connection.closed:
            return
        if reply.buffers is None and api_key != PRODUCE:
            self.block_on(reply)
        elif len(self._replies) >= IN_FLIGHT_MAX or self._connection.backlog > BACKLOG_MAX:
            self._pause()

    def drained(self) -> None:
        self._resume_if_possible()

    def connection_lost(self) -> None:
        self._replies.clear()
        blocking, self._blocking = self._blocking, None
        if blocking is not None and blocking.release is not None:
            release, blocking.release = blocking.release, None
            release()  # broker.serving.Q5
        if self._fetch_client is not None:
            self._broker.fetch_sessions.close(self._fetch_client)
        if self._leaving is not None:
            self._leaving.release()
            self._leaving = None

    # -- responses

    def reply_ready(self, reply: TurnReply) -> None:
        """Send `reply` and later responses that are ready, if all earlier ones were sent."""
        replies = self._replies
        if not replies or replies[0] is not reply:
            return  # broker.serving.Q1; or the connection is closed
        while replies and (buffers := replies[0].buffers) is not None:
            reply = replies.popleft()
            self._observe(reply.api_key, self._loop_time() - reply.started)
            if buffers:
                self._connection.send(buffers)
            if reply is self._blocking:
                self._blocking = None
            if reply.api_key == METADATA and self._broker.cluster.is_out_of_touch:
                self.close()  # broker.serving.Q4
                return
        if self._is_paused:
            self._resume_if_possible()

    def send_large(self, reply: TurnReply, buffers: list[Buffer], size: int) -> None:
        """Send `reply`, and count `size` bytes of memory until it is sent."""
        if self._connection.closed:
            return
        if size < LARGE_RESPONSE_SIZE:
            reply.send(buffers)
            return
        budget = self._leaving or self._new_budget(reply.api_key, version=0)
        try:
            budget.spend(size)
        except QuipuError as error:
            budget.release()
            self._leaving = None
            self._broker.limited.warning(
                "request failed", "closing connection of %s: api %d: %s", self.peer, reply.api_key,
                error)
            self._connection.close()
            return
        if self._leaving is None:
            budget.leaving(size)
            self._leaving = budget
            self._pause()
        reply.send(buffers)

    def block_on(self, reply: TurnReply) -> None:
        """Handle no later request until `reply` is sent or unblocked."""
        self._blocking = reply
        self._pause()

    def block_and_keep(self, reply: TurnReply, frame: memoryview) -> memoryview:
        """As `block_on`; returns the request's bytes, which do not change meanwhile."""
        self.block_on(reply)
        return self._connection.keep(frame)

    def unblock(self, reply: TurnReply) -> None:
        """Let the requests behind `reply` be handled."""
        if self._blocking is reply:
            self._blocking = None
            self._resume_if_possible()

    def close(self) -> None:
        """Close the connection after all responses given so far are sent."""
        self._connection.close(after_sending=True)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            blocking = self._blocking
            self._connection.pause(
                read_rest=blocking is not None and blocking.api_key not in LONG_WAITS)

    def _resume_if_possible(self) -> None:
        if self._leaving is not None and not self._replies and not self._connection.backlog:
            self._leaving.release()
            self._leaving = None
        if (
            self._is_paused
            and self._blocking is None
            and self._leaving is None
            and len(self._replies) < IN_FLIGHT_MAX
            and self._connection.backlog <= BACKLOG_MAX
        ):
            self._is_paused = False
            self._connection.resume()

    def refuse(self, why: str) -> None:
        """Close the connection because of a bad request."""
        self._broker.stats.malformed_requests += 1
        self._broker.limited.warning(
            "bad request", "closing connection of %s: %s", self.peer, why)
        self._connection.close(why=BAD_REQUEST)

    # -- requests that are decoded

    def _dispatch(
        self, reply: TurnReply, frame: memoryview, version: int, correlation_id: int
    ) -> None:
        api_key = reply.api_key
        supported = handlers.SUPPORTED.get(api_key)
        if supported is None or not supported[0] <= version <= supported[1]:
            if api_key == API_VERSIONS:  # the client asks again in a served version (KIP-511)
                reply.send([encode_response(correlation_id, unsupported_version_response(), 0)])
                return
            raise MalformedBytes("no such api or version; ask ApiVersions for what is served")
        size_max = (SYNC_GROUP_SIZE_MAX if api_key == SYNC_GROUP
                    else self._broker.settings.max_request_bytes)
        if len(frame) > size_max:
            self._broker.stats.requests_refused += 1
            raise MalformedBytes(f"{len(frame)} bytes; at most {size_max} are allowed "
                                 "(max.request.bytes)")
        queue = self._broker.queue
        if len(frame) <= LARGE_SIZE and queue.turns.has_time():
            self._serve(reply, frame)
        elif queue.has_room(len(frame)):
            self._spawn(reply, self._serve_later(reply, bytes(frame)))  # it is borrowed
        else:
            self._broker.stats.requests_refused += 1
            raise MalformedBytes("requests that wait for their turn use all of the memory for "
                                 "them (queued.max.request.bytes); send it again later")

    def _serve(self, reply: TurnReply, frame: memoryview) -> None:
        """Call the handler and respond, at once or when the handler's coroutine has ended."""
        client_request = self._admit(reply, self._decode(reply.api_key, frame))
        if client_request is None:
            return
        try:
            response = self._handle(client_request)
        except QuipuError as error:
            self._fail(reply, client_request, error)
            return
        if isinstance(response, Awaitable):
            self._spawn(reply, self._finish(reply, client_request, self._in_turn(response)))
            return
        self._send(reply, client_request.context, response)
        if self._connection.backlog > DECODED_TURN_MAX:
            self._pause()

    def _spawn(self, reply: TurnReply, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work, f"api {reply.api_key}")
        task.add_done_callback(self._close_if_failed)
        if reply.api_key in LONG_WAITS:
            reply.when_lost(task.cancel)  # broker.serving.Q5

    def _close_if_failed(self, task: asyncio.Task[Any]) -> None:
        """Close the connection if a request failed without a response."""
        if not task.cancelled() and task.exception() is not None:
            self._connection.close()

    async def _serve_later(self, reply: TurnReply, frame: bytes) -> None:
        """As `_serve`, when it is this request's turn (broker.serving.Q6)."""
        # JoinGroup and SyncGroup wait for requests of other members, so they must not hold one of
        # the places of large requests.
        is_large = len(frame) > LARGE_SIZE and reply.api_key not in MEMBER_KEYS
        async with self._broker.queue.turn(len(frame), is_large=is_large):
            if self._connection.closed:
                return
            try:
                decode = partial(self._decode, reply.api_key, memoryview(frame))
                decoded = (await self._broker.workers.run(decode) if len(frame) > HUGE_SIZE
                           else decode())
                client_request = self._admit(reply, decoded)
            except MalformedBytes as error:
                self.refuse(f"api {reply.api_key}: {error}")
                return
            except Exception:  # noqa: BLE001 as in `frame_received`
                self._broker.limited.exception(
                    "request failed", "request api %d of %s failed", reply.api_key, self.peer)
                self._connection.close()
                return
            if client_request is not None:
                await self._finish(
                    reply, client_request, self._handle_and_await(client_request))

    def _decode(self, api_key: int, frame: memoryview) -> Decoded:
        """The request in `frame`, or an empty one and an error; may be called in a thread."""
        header, position = decode_request_header(frame)
        version = header.api_version
        context = Context(version, header.correlation_id, header.client_id,
                          self._connection.peer_host, self._new_budget(api_key, version),
                          self.listener, self.principal)
        body = frame[position:]
        try:
            request = forwarding.decode_request(self._broker, api_key, body, version)
        except TooManyElements as error:
            return forwarding.ClientRequest(REQUESTS[api_key](), b"", context), error
        kept = bytes(body) if handlers.is_on_controller(api_key) else b""  # the frame is borrowed
        return forwarding.ClientRequest(request, kept, context), None

    def _admit(self, reply: TurnReply, decoded: Decoded) -> forwarding.ClientRequest | None:
        """The request; None if it has too many elements, and an error was sent."""
        client_request, error = decoded
        if error is None:
            return client_request
        self._broker.stats.requests_refused += 1
        self._fail(reply, client_request, error)
        return None

    def _new_budget(self, api_key: int, version: int) -> ResponseBudget:
        return ResponseBudget(
            self._broker.response_budgets, RESPONSES[api_key], version,
            is_closed=lambda: self._connection.closed, close=self._connection.close)

    def _handle(self, client_request: forwarding.ClientRequest) -> Message | Awaitable[Message]:
        """Call the handler, here or on the controller."""
        key = client_request.request.KEY
        if handlers.is_on_controller(key):
            return forwarding.forward(self._broker, client_request)
        return handlers.load(key)(self._broker, client_request.request, client_request.context)

    async def _in_turn(self, response: Awaitable[Message]) -> Message:
        """Await `response`, a coroutine that has not begun, after other requests had a turn."""
        try:
            await self._broker.queue.turns.ready()
        except asyncio.CancelledError:
            if isinstance(response, Coroutine):
                response.close()
            raise
        return await response

    async def _handle_and_await(self, client_request: forwarding.ClientRequest) -> Message:
        response = self._handle(client_request)
        return await response if isinstance(response, Awaitable) else response

    async def _finish(
        self, reply: TurnReply, client_request: forwarding.ClientRequest,
        response: Awaitable[Message],
    ) -> None:
        """Await the response and send it, or its error."""
        try:
            message = await response
        except asyncio.CancelledError:  # broker.serving.Q5
            _release(client_request.context)
            raise
        except ClientGone:
            _release(client_request.context)
        except QuipuError as error:
            self._fail(reply, client_request, error)
        except Exception as error:  # noqa: BLE001 as above
            self._broker.limited.exception(
                "request failed", "request api %d of %s failed", reply.api_key, self.peer)
            self._fail(reply, client_request, QuipuError(str(error)))
        else:
            if self._connection.closed:
                _release(client_request.context)
            else:
                self._send(reply, client_request.context, message)

    def _send(
        self, reply: TurnReply, context: Context, message: Message
    ) -> None:
        """Respond; while a large response is sent, its memory counts and later requests wait."""
        version, budget = context.api_version, context.budget
        assert budget is not None
        if isinstance(message, forwarding.ForwardedResponse):
            buffers = encode_response_body(
                context.correlation_id, RESPONSES[reply.api_key], version, [message.body])
        elif budget.size < LARGE_RESPONSE_SIZE:
            buffers = [encode_response(context.correlation_id, message, version)]
        else:
            buffers = encode_response_body(
                context.correlation_id, type(message), version, message.encode_chunks(version))
        size = sum(map(len, buffers))
        if size < LARGE_RESPONSE_SIZE:
            budget.release()
        else:
            budget.leaving(size)
            self._leaving = budget
            self._pause()
        reply.send(list(buffers))

    def _fail(
        self, reply: TurnReply, client_request: forwarding.ClientRequest, error: QuipuError
    ) -> None:
        """Respond with the error if the response has a field for one; else close."""
        request, context = client_request.request, client_request.context
        _release(context)
        if self._connection.closed:
            return
        self._broker.stats.request_errors[reply.api_key, code_of(error)] += 1
        response = handlers.refused(request, context.api_version, error)
        if response is None:
            self._broker.limited.warning(
                "request failed", "closing connection of %s: api %d: %s", self.peer, reply.api_key,
                error)
            self._connection.close()
            return
        reply.send([encode_response(context.correlation_id, response, context.api_version)])


def _release(context: Context) -> None:
    if context.budget is not None:
        context.budget.release()
