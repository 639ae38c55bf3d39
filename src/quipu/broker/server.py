"""Kafka's conversation on one connection: requests in, answers out in the order of the requests.

Produce and Fetch have entrances of their own that work on bytes; every other request is decoded,
handed to its handler, and its answer encoded.  Some only the controller can answer (envelopes.py).

Invariants
    Q1  answers leave in the order in which their requests came
    Q2  while a request other than Produce waits for its answer, or a Produce for its records to be
        looked at, the ones behind it are not looked at; so a client sees the effects of its
        requests in order, as it does with Kafka
    Q3  at most IN_FLIGHT_MAX requests of a connection wait, and a peer that does not take its
        answers gets no more of its requests read: one connection holds bounded memory
    Q4  a node that is out of touch with the controller answers Metadata, and then closes the
        connection: a client that has no other would ask here again and again for who leads
    Q5  a client that goes while its request waits for something (records, other members of a
        group) ends that wait at once; what it asked to be changed is changed all the same
    Q6  requests take turns (runtime/turns.py): together they have the loop for a few milliseconds
        at a time; of large ones LARGE_MAX are worked on at a time, and the bytes of those that
        wait are bounded.  Only Produce and Fetch of few partitions are served as they come

A request that cannot be decoded closes its connection, with a line in the log; it harms no other.
One that asks for too much is told so, where its answer has a place for that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from struct import Struct
from typing import Any, Final

from quipu.broker import envelopes, handlers
from quipu.broker.answers import LARGE_ANSWER_SIZE, Answer, AskerGone
from quipu.broker.context import Broker, Context
from quipu.broker.fetch_sessions import FetchClient
from quipu.broker.handlers import k00_produce, k01_fetch
from quipu.broker.handlers.k18_api_versions import unsupported_version_response
from quipu.broker.request_queue import LARGE_SIZE
from quipu.model.errors import MalformedBytes, QuipuError, TooManyElements
from quipu.runtime.admission import address_key
from quipu.runtime.connection import Buffer
from quipu.runtime.net_limits import BAD_REQUEST
from quipu.runtime.network import FrameConnection
from quipu.runtime.spawn import spawn
from quipu.wire.frame import decode_request_header, encode_response, encode_response_body
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.schema import Response

IN_FLIGHT_MAX: Final = 100  # requests of one connection whose answers are not ready
BACKLOG_MAX: Final = 1000  # buffers of one connection that wait for the peer
DECODED_TURN_MAX: Final = 32  # decoded requests answered in one turn; then others have theirs
SYNC_GROUP_SIZE_MAX: Final = 32 << 20  # this one carries the members' bytes as they are

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
API_VERSIONS: Final = 18
MEMBER_KEYS: Final = frozenset({JOIN_GROUP, SYNC_GROUP})  # these wait for other members
# These wait for others, for as long as the client says.  What comes behind one of them, from a
# client that has gone, is dropped.
LONG_WAITS: Final = frozenset({FETCH, *MEMBER_KEYS})

Message = Response | envelopes.PassedOn

_HEAD: Final = Struct(">hhi")  # api key, api version, correlation id


class TurnReply:
    """The answer to one request; sent in its turn (Q1)."""

    __slots__ = ("_session", "api_key", "buffers", "release", "started")

    def __init__(self, session: "Session", api_key: int, started: float) -> None:
        self._session = session
        self.api_key = api_key
        self.started = started
        self.buffers: list[Buffer] | None = None
        self.release: Callable[[], object] | None = None

    @property
    def fetch_client(self) -> FetchClient:
        """The connection, as the one who fetches."""
        return self._session.fetch_client()

    def send(self, buffers: list[Buffer]) -> None:
        """Answer; an empty list answers nothing, for requests that want no answer."""
        assert self.buffers is None, "a request is answered once"
        self.buffers = buffers
        self.release = None  # it refers to whoever answers, who refers to this
        self._session.answered(self)

    def send_large(self, buffers: list[Buffer], size: int) -> None:
        """The same for an answer of which `size` bytes are memory until it has left."""
        self._session.send_large(self, buffers, size)

    def hold(self, frame: memoryview) -> memoryview:
        """Look at no request behind this one until `go_on` (Q2); gives its bytes until then."""
        return self._session.wait_with(self, frame)

    def go_on(self) -> None:
        """The effects of this request are there: look at those behind it."""
        self._session.done_waiting(self)

    def close(self, why: str) -> None:
        """Close the connection instead."""
        self._session.refuse(why)

    def when_lost(self, release: Callable[[], object]) -> None:
        """Call `release` if the connection is gone before the answer (Q5)."""
        self.release = release


class Session:
    """One client's connection."""

    __slots__ = (
        "_broker", "_connection", "_fetch_client", "_held", "_leaving", "_loop_time", "_observe",
        "_replies", "_waits",
    )

    def __init__(self, broker: Broker, connection: FrameConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._loop_time = broker.clock.monotonic
        self._observe = broker.stats.observe_request
        self._fetch_client: FetchClient | None = None  # until it fetches
        self._replies: deque[TurnReply] = deque()
        self._held = False  # frames are held back (Q2, Q3)
        self._waits: TurnReply | None = None  # the request that holds them back (Q2)
        self._leaving: Answer | None = None  # a large one that has not left yet

    @property
    def peer(self) -> str:
        return f"{self._connection.peer_host}:{self._connection.peer_port}"

    def fetch_client(self) -> FetchClient:
        client = self._fetch_client
        if client is None:
            client = self._fetch_client = FetchClient(address_key(self._connection.peer_host))
        return client

    # -- from the connection

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
            self.wait_for(reply)
        elif len(self._replies) >= IN_FLIGHT_MAX or self._connection.backlog > BACKLOG_MAX:
            self._hold()

    def drained(self) -> None:
        self._go_on()

    def connection_lost(self) -> None:
        self._replies.clear()
        waits, self._waits = self._waits, None
        if waits is not None and waits.release is not None:
            release, waits.release = waits.release, None
            release()  # Q5
        if self._fetch_client is not None:
            self._broker.fetch_sessions.close(self._fetch_client)
        if self._leaving is not None:
            self._leaving.release()
            self._leaving = None

    # -- answers

    def answered(self, reply: TurnReply) -> None:
        """Send `reply` and every answer behind it that is ready, if its turn has come."""
        replies = self._replies
        if not replies or replies[0] is not reply:
            return  # Q1; or the connection is gone
        while replies and (buffers := replies[0].buffers) is not None:
            reply = replies.popleft()
            self._observe(reply.api_key, self._loop_time() - reply.started)
            if buffers:
                self._connection.send(buffers)
            if reply is self._waits:
                self._waits = None
            if reply.api_key == METADATA and self._broker.cluster.is_out_of_touch:
                self.close()  # Q4
                return
        if self._held:
            self._go_on()

    def send_large(self, reply: TurnReply, buffers: list[Buffer], size: int) -> None:
        """Send `reply`, whose memory counts with all answers that have not left."""
        if self._connection.closed:
            return
        if size < LARGE_ANSWER_SIZE:
            reply.send(buffers)
            return
        answer = self._leaving or self._answer(reply.api_key, version=0)
        try:
            answer.spend(size)
        except QuipuError as error:
            answer.release()
            self._leaving = None
            self._broker.limited.warning(
                "request failed", "closing connection of %s: api %d: %s", self.peer, reply.api_key,
                error)
            self._connection.close()
            return
        if self._leaving is None:
            answer.leaving(size)
            self._leaving = answer
            self._hold()
        reply.send(buffers)

    def wait_for(self, reply: TurnReply) -> None:
        """Hold back what is behind `reply`."""
        self._waits = reply
        self._hold()

    def wait_with(self, reply: TurnReply, frame: memoryview) -> memoryview:
        """The same; gives the request's bytes, which stay as they are meanwhile."""
        self.wait_for(reply)
        return self._connection.keep(frame)

    def done_waiting(self, reply: TurnReply) -> None:
        """What was held back for `reply` may go on."""
        if self._waits is reply:
            self._waits = None
            self._go_on()

    def close(self) -> None:
        """Give up the connection, after what has been answered has left."""
        self._connection.close(after_sending=True)

    def _hold(self) -> None:
        if not self._held:
            self._held = True
            waits = self._waits
            self._connection.pause(
                read_rest=waits is not None and waits.api_key not in LONG_WAITS)

    def _go_on(self) -> None:
        if self._leaving is not None and not self._replies and not self._connection.backlog:
            self._leaving.release()
            self._leaving = None
        if (
            self._held
            and self._waits is None
            and self._leaving is None
            and len(self._replies) < IN_FLIGHT_MAX
            and self._connection.backlog <= BACKLOG_MAX
        ):
            self._held = False
            self._connection.resume()

    def refuse(self, why: str) -> None:
        """Close the connection for what the client sent."""
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
            if api_key == API_VERSIONS:  # the client asks again with a version it is told (KIP-511)
                reply.send([encode_response(correlation_id, unsupported_version_response(), 0)])
                return
            raise MalformedBytes("no such api or version; ask ApiVersions for what is served")
        size_max = (SYNC_GROUP_SIZE_MAX if api_key == SYNC_GROUP
                    else self._broker.settings.max_request_bytes)
        if len(frame) > size_max:
            self._broker.stats.requests_refused += 1
            raise MalformedBytes(f"{len(frame)} bytes; at most {size_max} are taken "
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
        """Answer at once, or as soon as the handler has waited for what it waits for."""
        asked = self._asked(reply, frame)
        if asked is None:
            return
        try:
            response = self._handled(asked)
        except QuipuError as error:
            self._failed(reply, asked, error)
            return
        if isinstance(response, Awaitable):
            self._spawn(reply, self._finish(reply, asked, self._in_turn(response)))
            return
        self._send(reply, asked.context, response)
        if self._connection.backlog > DECODED_TURN_MAX:
            self._hold()

    def _spawn(self, reply: TurnReply, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work, f"api {reply.api_key}")
        task.add_done_callback(self._close_if_failed)
        if reply.api_key in LONG_WAITS:
            reply.when_lost(task.cancel)  # Q5

    def _close_if_failed(self, task: asyncio.Task[Any]) -> None:
        """No request is left without an answer, on a connection that stays."""
        if not task.cancelled() and task.exception() is not None:
            self._connection.close()

    async def _serve_later(self, reply: TurnReply, frame: bytes) -> None:
        """The same when it is this request's turn (Q6)."""
        # Those of members wait for others like them, whom they must not keep out.
        is_large = len(frame) > LARGE_SIZE and reply.api_key not in MEMBER_KEYS
        async with self._broker.queue.turn(len(frame), is_large=is_large):
            if self._connection.closed:
                return
            try:
                asked = self._asked(reply, memoryview(frame))
            except MalformedBytes as error:
                self.refuse(f"api {reply.api_key}: {error}")
                return
            except Exception:  # noqa: BLE001 as in `frame_received`
                self._broker.limited.exception(
                    "request failed", "request api %d of %s failed", reply.api_key, self.peer)
                self._connection.close()
                return
            if asked is not None:
                await self._finish(reply, asked, self._handled_soon(asked))

    def _asked(self, reply: TurnReply, frame: memoryview) -> envelopes.Asked | None:
        """The request in `frame`; None if it was answered already, for having too many elements."""
        api_key = reply.api_key
        header, position = decode_request_header(frame)
        version, broker = header.api_version, self._broker
        context = Context(version, header.correlation_id, header.client_id,
                          self._connection.peer_host, self._answer(api_key, version))
        body = frame[position:]
        try:
            request = envelopes.understood(broker, api_key, body, version)
        except TooManyElements as error:
            broker.stats.requests_refused += 1
            self._failed(reply, envelopes.Asked(REQUESTS[api_key](), b"", context), error)
            return None
        kept = bytes(body) if handlers.is_on_controller(api_key) else b""  # the frame is borrowed
        return envelopes.Asked(request, kept, context)

    def _answer(self, api_key: int, version: int) -> Answer:
        return Answer(self._broker.answers, RESPONSES[api_key], version,
                      is_closed=lambda: self._connection.closed, close=self._connection.close)

    def _handled(self, asked: envelopes.Asked) -> Message | Awaitable[Message]:
        key = asked.request.KEY
        if handlers.is_on_controller(key):
            return envelopes.carry(self._broker, asked)
        return handlers.load(key)(self._broker, asked.request, asked.context)

    async def _in_turn(self, response: Awaitable[Message]) -> Message:
        """The same; it begins when others have had their turns: nothing of it was done yet."""
        try:
            await self._broker.queue.turns.ready()
        except asyncio.CancelledError:
            if isinstance(response, Coroutine):
                response.close()
            raise
        return await response

    async def _handled_soon(self, asked: envelopes.Asked) -> Message:
        response = self._handled(asked)
        return await response if isinstance(response, Awaitable) else response

    async def _finish(
        self, reply: TurnReply, asked: envelopes.Asked, response: Awaitable[Message]
    ) -> None:
        try:
            message = await response
        except asyncio.CancelledError:  # Q5
            _release(asked.context)
            raise
        except AskerGone:
            _release(asked.context)
        except QuipuError as error:
            self._failed(reply, asked, error)
        except Exception as error:  # noqa: BLE001 as above
            self._broker.limited.exception(
                "request failed", "request api %d of %s failed", reply.api_key, self.peer)
            self._failed(reply, asked, QuipuError(str(error)))
        else:
            if self._connection.closed:
                _release(asked.context)
            else:
                self._send(reply, asked.context, message)

    def _send(
        self, reply: TurnReply, context: Context, message: Message
    ) -> None:
        """Answer; a large answer holds memory, and the requests behind it, until it has left."""
        version, answer = context.api_version, context.answer
        assert answer is not None
        if isinstance(message, envelopes.PassedOn):
            buffers = encode_response_body(
                context.correlation_id, RESPONSES[reply.api_key], version, [message.body])
        elif answer.size < LARGE_ANSWER_SIZE:
            buffers = [encode_response(context.correlation_id, message, version)]
        else:
            buffers = encode_response_body(
                context.correlation_id, type(message), version, message.encode_chunks(version))
        size = sum(map(len, buffers))
        if size < LARGE_ANSWER_SIZE:
            answer.release()
        else:
            answer.leaving(size)
            self._leaving = answer
            self._hold()
        reply.send(list(buffers))

    def _failed(self, reply: TurnReply, asked: envelopes.Asked, error: QuipuError) -> None:
        """Answer with the error where the api has a place for one; else close."""
        _release(asked.context)
        if self._connection.closed:
            return
        self._broker.stats.request_errors[reply.api_key, error.code] += 1
        response = handlers.refused(asked.request, asked.context.api_version, error)
        if response is None:
            self._broker.limited.warning(
                "request failed", "closing connection of %s: api %d: %s", self.peer, reply.api_key,
                error)
            self._connection.close()
            return
        reply.send([encode_response(
            asked.context.correlation_id, response, asked.context.api_version)])


def _release(context: Context) -> None:
    if context.answer is not None:
        context.answer.release()
