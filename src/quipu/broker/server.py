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

A request that cannot be decoded closes its connection, with a line in the log; it harms no other.
"""

import inspect
import logging
from collections import deque
from collections.abc import Awaitable
from struct import Struct
from typing import Any, Final

from quipu.broker import envelopes, handlers
from quipu.broker.context import Broker, Context
from quipu.broker.handlers import k00_produce, k01_fetch
from quipu.broker.handlers.k18_api_versions import unsupported_version_response
from quipu.broker.reply import Referrals
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.runtime.connection import Buffer
from quipu.runtime.network import FrameConnection
from quipu.runtime.spawn import spawn
from quipu.wire.frame import decode_request_header, encode_response
from quipu.wire.messages import REQUESTS, RESPONSES

_log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 100  # requests of one connection whose answers are not ready
BACKLOG_MAX: Final = 1000  # buffers of one connection that wait for the peer
DECODED_TURN_MAX: Final = 32  # decoded requests answered in one turn; then others have theirs
DECODED_SIZE_MAX: Final = 2 << 20  # of a request that is decoded: its parts cost far more memory
SYNC_GROUP_SIZE_MAX: Final = 32 << 20  # ... but this one carries the members' bytes as they are

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
SYNC_GROUP: Final = 14
API_VERSIONS: Final = 18

_HEAD: Final = Struct(">hhi")  # api key, api version, correlation id


class TurnReply:
    """The answer to one request; sent in its turn (Q1)."""

    __slots__ = ("_session", "api_key", "buffers", "started")

    def __init__(self, session: "Session", api_key: int, started: float) -> None:
        self._session = session
        self.api_key = api_key
        self.started = started
        self.buffers: list[Buffer] | None = None

    @property
    def referrals(self) -> Referrals:
        """Where readers of this connection were sent."""
        return self._session.referrals

    def send(self, buffers: list[Buffer]) -> None:
        """Answer; an empty list answers nothing, for requests that want no answer."""
        assert self.buffers is None, "a request is answered once"
        self.buffers = buffers
        self._session.answered(self)

    def hold(self) -> None:
        """Look at no request behind this one until `go_on` (Q2)."""
        self._session.wait_for(self)

    def go_on(self) -> None:
        """The effects of this request are there: look at those behind it."""
        self._session.done_waiting(self)

    def close(self, why: str) -> None:
        """Close the connection instead."""
        self._session.refuse(why)


class Session:
    """One client's connection."""

    __slots__ = (
        "_broker", "_connection", "_held", "_loop_time", "_observe", "_replies", "_waits",
        "referrals",
    )

    def __init__(self, broker: Broker, connection: FrameConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._loop_time = broker.clock.monotonic
        self._observe = broker.stats.observe_request
        self.referrals: Referrals = {}
        self._replies: deque[TurnReply] = deque()
        self._held = False  # frames are held back (Q2, Q3)
        self._waits: TurnReply | None = None  # the request that holds them back (Q2)

    @property
    def peer(self) -> str:
        return f"{self._connection.peer_host}:{self._connection.peer_port}"

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
            _log.exception("request api %d v%d of %s failed", api_key, version, self.peer)
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

    def wait_for(self, reply: TurnReply) -> None:
        """Hold back what is behind `reply`."""
        self._waits = reply
        self._hold()

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
            self._connection.pause()

    def _go_on(self) -> None:
        if (
            self._held
            and self._waits is None
            and len(self._replies) < IN_FLIGHT_MAX
            and self._connection.backlog <= BACKLOG_MAX
        ):
            self._held = False
            self._connection.resume()

    def refuse(self, why: str) -> None:
        """Close the connection for what the client sent."""
        self._broker.stats.malformed_requests += 1
        _log.warning("closing connection of %s: %s", self.peer, why)
        self._connection.close()

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
        size_max = SYNC_GROUP_SIZE_MAX if api_key == SYNC_GROUP else DECODED_SIZE_MAX
        if len(frame) > size_max:
            raise MalformedBytes(f"{len(frame)} bytes; at most {size_max} are taken")
        header, position = decode_request_header(frame)
        # Bytes after the request are ignored, as Kafka does: librdkafka sends three of them when
        # it asks for the metadata of all topics in a flexible version.
        request, _ = REQUESTS[api_key].decode_prefix(frame[position:], version)
        context = Context(version, correlation_id, header.client_id, self._connection.peer_host)
        response: Any
        try:
            if handlers.is_on_controller(api_key):
                body = bytes(frame[position:])  # the frame is borrowed
                response = envelopes.carry(
                    self._broker, envelopes.Asked(request, body, context))
            else:
                response = handlers.load(api_key)(self._broker, request, context)
        except QuipuError as error:
            self._failed(reply, context, error)
            return
        if inspect.isawaitable(response):
            spawn(self._finish(reply, context, response), f"api {api_key}")
        else:
            reply.send([encode_response(correlation_id, response, version)])
            if self._connection.backlog > DECODED_TURN_MAX:
                self._hold()

    async def _finish(self, reply: TurnReply, context: Context, response: Awaitable[Any]) -> None:
        try:
            message = await response
        except QuipuError as error:
            self._failed(reply, context, error)
        except Exception as error:  # noqa: BLE001 as above
            _log.exception("request api %d of %s failed", reply.api_key, self.peer)
            self._failed(reply, context, QuipuError(str(error)))
        else:
            if message is None or self._connection.closed:
                return
            reply.send([encode_response(context.correlation_id, message, context.api_version)])

    def _failed(self, reply: TurnReply, context: Context, error: QuipuError) -> None:
        """Answer with the error where the api has a place for one; else close."""
        self._broker.stats.request_errors[reply.api_key, error.code] += 1
        response = RESPONSES[reply.api_key]()
        if not hasattr(response, "error_code") or error.code == Code.NONE:
            _log.warning("closing connection of %s: api %d: %s", self.peer, reply.api_key, error)
            self._connection.close()
            return
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = str(error)
        reply.send([encode_response(context.correlation_id, response, context.api_version)])
