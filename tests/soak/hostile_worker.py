"""A process that sends hostile requests over several connections, and checks the responses.

Quick connections have many requests in flight.  Slow ones have one, which may be one that waits for
records or for other members of a group.

A finding is a response that does not decode, or is to another request; none for ANSWER_SECONDS_MAX;
a connection that is closed for an undocumented reason.  A connection may be closed after
    * a refused Produce with acks=0: its client cannot notice otherwise
    * a request for too much, if the response of that API has no field for an error
    * a request that the controller could not handle, likewise
"""

import contextlib
import random
import selectors
import socket
import struct
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final
from uuid import UUID

from quipu.broker.handlers import is_on_controller, refused
from quipu.model.errors import Code, QuipuError
from quipu.model.settings import BrokerSettings
from quipu.wire._fast_pure import FETCH_ODD_SIZE_MAX
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages import REQUESTS
from quipu.wire.schema import Request
from tests.soak.hostile_values import (
    FETCH,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    PRODUCE,
    Generator,
    Known,
    count_elements,
)

ANSWER_SECONDS_MAX: Final = 10.0
ELEMENTS_MAX: Final = BrokerSettings().max_request_elements
FRAME_SIZE_MAX: Final = 2_000_000  # below max.request.bytes
QUICK_CONNECTIONS: Final = 6
SLOW_CONNECTIONS: Final = 4
QUICK_DEPTH: Final = 24
POOL_SIZE: Final = 1_500  # requests that are sent again now and then
AGAIN_SHARE: Final = 0.6  # of requests that are sent again; making one takes the most time
DECODED_SHARE: Final = 0.25
ALWAYS_DECODED: Final = frozenset({JOIN_GROUP, INIT_PRODUCER_ID})
STALLED_SECONDS: Final = 3.0  # a turn of a worker on a machine that is busy
FINDINGS_MAX: Final = 5
CLIENT_IDS: Final = (None, "", "attacker", "é\n\0", "c" * 3000, "i" * 32_767)


@dataclass(slots=True)
class Made:
    """A request, and its frame."""

    request: Request
    version: int
    frame: bytes
    waits: bool

    @property
    def key(self) -> int:
        return self.request.KEY

    @property
    def is_answered(self) -> bool:
        return not (self.key == PRODUCE and self.request.acks == 0)  # type: ignore[attr-defined]

    @property
    def may_be_closed(self) -> bool:
        """Does an error of this request end its connection?"""
        if not self.is_answered:
            return True
        error = QuipuError("no", code=Code.INVALID_REQUEST)
        if is_on_controller(self.key) and refused(self.request, self.version, error) is None:
            return True
        if self.key == FETCH and len(self.frame) > FETCH_ODD_SIZE_MAX:
            return True  # with tagged fields, as many of them have
        if count_elements(self.request) <= ELEMENTS_MAX:
            return False
        return self.key in (PRODUCE, FETCH) or (
            refused(REQUESTS[self.key](), self.version, error) is None)

    def __str__(self) -> str:
        return f"{type(self.request).__name__} v{self.version}, {len(self.frame)} bytes"


@dataclass(slots=True)
class Report:
    """What a worker did."""

    sent: Counter[int] = field(default_factory=Counter)  # by API key
    decoded: Counter[int] = field(default_factory=Counter)
    succeeded: Counter[int] = field(default_factory=Counter)  # without an error in any part
    closed: Counter[int] = field(default_factory=Counter)
    stalled: float = 0.0  # seconds for which the worker itself did nothing, at most
    findings: list[str] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)  # that led to the findings, oldest first


@dataclass(slots=True)
class Orders:
    """What a worker is to do."""

    addresses: list[tuple[str, int]]
    seed: int
    requests: int
    until: float  # time.monotonic(); CLOCK_MONOTONIC is the same for all processes
    topic_ids: dict[str, UUID]
    cluster_id: str


class Connection:
    """One socket, with requests in flight."""

    def __init__(self, host: str, port: int, *, depth: int, waits: bool) -> None:
        self.waits = waits
        self.depth = depth
        self.socket = socket.create_connection((host, port), ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.pending: deque[tuple[int, Made]] = deque()  # correlation id, request
        self.unsent = bytearray()
        self.received = bytearray()
        self.heard_at = time.monotonic()
        self.may_be_closed = False  # for a Produce with acks=0 that nobody waits for any more

    def add(self, correlation_id: int, made: Made) -> None:
        if not self.pending:
            self.heard_at = time.monotonic()
        self.pending.append((correlation_id, made))
        frame = made.frame
        self.unsent += frame[:8] + correlation_id.to_bytes(4, "big") + frame[12:]

    def send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                del self.unsent[:self.socket.send(self.unsent[:1 << 18])]

    def receive(self) -> list[bytes]:
        """Frames that are complete; raises ConnectionError if the peer has closed."""
        with contextlib.suppress(BlockingIOError):
            while part := self.socket.recv(1 << 20):
                self.received += part
                if len(part) < 1 << 20:
                    break
            else:
                raise ConnectionError("closed by the node")
        frames, position, data = [], 0, self.received
        while len(data) - position >= 4:
            (size,) = struct.unpack_from(">i", data, position)
            if len(data) - position - 4 < size:
                break
            frames.append(bytes(data[position + 4:position + 4 + size]))
            position += 4 + size
        del data[:position]
        return frames


class Worker:
    """Sends until its orders are done or something is found."""

    def __init__(self, orders: Orders, done: "Synchronized[int]") -> None:
        self._orders = orders
        self._done = done
        self._chance = random.Random(orders.seed)
        self._known = Known(orders.topic_ids, orders.cluster_id)
        self._generator = Generator(self._chance, self._known)
        self._pool: dict[bool, list[Made]] = {False: [], True: []}
        self._correlation_id = 0
        self._selector = selectors.DefaultSelector()
        self._left = orders.requests
        self.report = Report()

    def run(self) -> Report:
        for number in range(QUICK_CONNECTIONS + SLOW_CONNECTIONS):
            self._connect(waits=number >= QUICK_CONNECTIONS)
        turned_at = time.monotonic()
        while not self.report.findings and self._is_open():
            for key, events in self._selector.select(0.5):
                self._turn(key.data, events)
            now = time.monotonic()
            self.report.stalled = max(self.report.stalled, now - turned_at)
            if now - turned_at < STALLED_SECONDS:  # else it was not the node that was silent
                self._look_for_silence()
            turned_at = now
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        return self.report

    def _is_open(self) -> bool:
        """Is there anything left to send, or to wait for?"""
        if time.monotonic() > self._orders.until:
            self._left = 0
        return self._left > 0 or any(
            key.data.pending for key in self._selector.get_map().values())

    def _connect(self, *, waits: bool) -> None:
        host, port = self._chance.choice(self._orders.addresses)
        connection = Connection(host, port, depth=1 if waits else QUICK_DEPTH, waits=waits)
        self._selector.register(
            connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        self._add(connection)

    def _turn(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                for frame in connection.receive():
                    self._answered(connection, frame)
                connection.heard_at = time.monotonic()
            if len(connection.pending) <= connection.depth // 2:
                self._add(connection)
            connection.send()
        except (ConnectionError, TimeoutError) as error:
            self._closed(connection, error)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.socket, wanted, connection)

    def _add(self, connection: Connection) -> None:
        while self._left > 0 and len(connection.pending) < connection.depth:
            made = self._make(waits=connection.waits)
            self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
            connection.add(self._correlation_id, made)
            self.report.sent[made.key] += 1
            self._left -= 1
            with self._done.get_lock():
                self._done.value += 1

    def _make(self, *, waits: bool) -> Made:
        pool, chance = self._pool[waits], self._chance
        if pool and chance.random() < AGAIN_SHARE * (0.2 if waits else 1):  # members go soon
            return chance.choice(pool)
        while True:
            request, version = self._generator.request(waits=waits)
            frame = encode_request(request, version, correlation_id=0,
                                   client_id=chance.choices(CLIENT_IDS, (60, 10, 20, 6, 3, 1))[0])
            if len(frame) < FRAME_SIZE_MAX:
                break
        made = Made(request, version, frame, waits)
        if len(frame) < 100_000:
            if len(pool) < POOL_SIZE:
                pool.append(made)
            else:
                pool[chance.randrange(POOL_SIZE)] = made
        return made

    # -- answers

    def _answered(self, connection: Connection, frame: bytes) -> None:
        pending = connection.pending
        (correlation_id,) = struct.unpack_from(">i", frame)
        while pending and not pending[0][1].is_answered:
            pending.popleft()
        if not pending or pending[0][0] != correlation_id:
            self._found(f"an answer to request {correlation_id}, which it was not the turn of",
                        connection)
            return
        made = pending.popleft()[1]
        connection.may_be_closed = False
        if made.key not in ALWAYS_DECODED and self._chance.random() > DECODED_SHARE:
            return
        try:
            _, response = decode_response(memoryview(frame), made.key, made.version)
        except Exception as error:  # noqa: BLE001 whatever it is, it is a finding
            pending.appendleft((correlation_id, made))
            self._found(f"the answer to {made} does not decode: {error!r}; "
                        f"{frame[:200].hex()}", connection)
            return
        self.report.decoded[made.key] += 1
        self.report.succeeded[made.key] += not _has_error(response)
        self._known.learn(made.request, response)

    def _closed(self, connection: Connection, error: Exception) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        pending = [made for _, made in connection.pending]
        allowed = [made for made in pending if made.may_be_closed]
        if pending and not allowed and not connection.may_be_closed:
            self.report.closed[pending[0].key] += 1
            self._found(f"closed without a reason that is documented: {error!r}", connection)
            return
        for made in allowed[:1]:
            self.report.closed[made.key] += 1
        with contextlib.suppress(OSError):
            self._connect(waits=connection.waits)
            return
        self._found("no new connection is taken", connection)

    def _look_for_silence(self) -> None:
        now = time.monotonic()
        for key in list(self._selector.get_map().values()):
            connection: Connection = key.data
            while connection.pending and not connection.unsent and (
                    not connection.pending[0][1].is_answered) and len(connection.pending) == 1:
                connection.pending.popleft()  # nothing will come, and nothing is wrong
                connection.may_be_closed = True
                self._add(connection)
                self._selector.modify(
                    connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            if connection.pending and now - connection.heard_at > ANSWER_SECONDS_MAX:
                self._found(f"no answer within {ANSWER_SECONDS_MAX:g} s", connection)

    def _found(self, what: str, connection: Connection) -> None:
        pending = [made for _, made in connection.pending]
        text = "; ".join(map(str, pending[:4]))
        if len(self.report.findings) < FINDINGS_MAX:
            self.report.findings.append(f"{what}; in flight: {text}")
            self.report.frames += [made.frame for made in pending]


def _has_error(value: Any) -> bool:
    """Whether a response has an error code anywhere."""
    if isinstance(value, (list, tuple)):
        return any(map(_has_error, value[:3]))
    fields = getattr(type(value), "FIELDS", None)
    if fields is None:
        return False
    return any(getattr(value, name) != 0 if name == "error_code" else
               _has_error(getattr(value, name)) for name in fields)


def name_of(key: int) -> str:
    return REQUESTS[key].__name__.removesuffix("Request")


def work(orders: Orders, done: "Synchronized[int]", results: Any) -> None:
    """The main function of a worker's process."""
    worker = Worker(orders, done)
    try:
        results.put(worker.run())
    except BaseException as error:
        worker.report.findings.append(f"the worker failed: {error!r}")
        results.put(worker.report)
        raise
