"""Fetch of many partitions, named or in a session: served in turns with everybody else.

Such a request waits for its turn as the bytes that came.  Its partitions are read a few at a time,
and its answer is made in steps.  If it waits for records it gives up its place meanwhile, and reads
everything once more when some have come, or when its time is over.

Invariants
    B1  a partition is waited for before it is read, so that no advance in between is missed; who
        is woken for what it has read already answers with less than it asked for
    B2  the requests behind it on its connection wait for its answer, so nobody else uses its
        session meanwhile; if the session ends all the same, it is served without one
    B3  a client that goes ends the request at once, wherever it is
    B4  what it holds counts, among the large requests while it works, and among the waiting fetches
        while it waits; its answer counts until it has left

Not here: reading (fetching.py), sessions (fetch_sessions.py), whose turn it is (runtime/turns.py).
"""

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from quipu.broker.context import Broker
from quipu.broker.fetch_sessions import NO_SESSION, FetchSession, FetchTarget
from quipu.broker.fetching import (
    DIRTY_READER,
    MOVED,
    READ_COMMITTED,
    VERSION_IDS,
    VERSION_LEADERS,
    Answered,
    Found,
    Reader,
    by_topic,
    news,
    read,
)
from quipu.broker.partition import Partition
from quipu.broker.reply import Reply
from quipu.broker.routing import Key, Leader, endpoints, find_leader
from quipu.model.errors import MalformedBytes, QuipuError
from quipu.runtime.spawn import spawn
from quipu.wire.fast import parse_fetch
from quipu.wire.fetch_codec import FetchCall, encode_fetch_response, fetch_response_steps
from quipu.wire.produce_codec import STEP_PARTS

READ_STEP: Final = 8  # partitions read in one step: each may give a megabyte that is checked
NAMED_STEP: Final = 256  # partitions taken over from a request in one step

Head = tuple[int, int]  # correlation id, version


def begin(broker: Broker, reply: Reply, frame: memoryview, head: Head) -> None:
    """Serve the request in `frame` when it is its turn."""
    if not broker.queue.has_room(len(frame)):
        broker.stats.requests_refused += 1
        raise MalformedBytes("requests that wait for their turn use all of the memory for them "
                             "(queued.max.request.bytes); send it again later")
    request = _LargeFetch(broker, reply, head)
    _spawn(reply, request.run(bytes(frame)))  # it is borrowed


def go_on(
    broker: Broker, reply: Reply, head: Head, call: FetchCall, session: FetchSession
) -> None:
    """The same for a small request that uses a session of many partitions."""
    _spawn(reply, _LargeFetch(broker, reply, head).run_in_session(call, session))


def _spawn(reply: Reply, work: Coroutine[Any, Any, None]) -> None:
    reply.when_lost(spawn(work, "large fetch").cancel)  # B3


class _LargeFetch:
    """One request, from its bytes to its answer: the `Waiter` of its partitions."""

    def __init__(self, broker: Broker, reply: Reply, head: Head) -> None:
        self._broker = broker
        self._turns = broker.queue.turns
        self._reply = reply
        self._client = reply.fetch_client
        self._correlation_id, self._version = head
        self._call: FetchCall
        self._session: FetchSession
        self._reader: Reader
        self._started = asyncio.get_running_loop().time()
        self._waits_for: list[Partition] = []
        self._missing = 0  # bytes that have to come, less those that came
        self._woken: asyncio.Future[None] | None = None  # while it waits

    async def run(self, frame: bytes) -> None:
        """Serve the request in `frame`."""
        with self._answered():
            async with self._broker.queue.turn(len(frame), is_large=True, may_wait=False):
                call = parse_fetch(memoryview(frame), -1, self._version)
                session = await self._turns.run(self._open(call))
                if await self._answer_at_once(call, session):
                    return
            await self._answer_later()

    async def run_in_session(self, call: FetchCall, session: FetchSession) -> None:
        """Serve a request that has been read, and whose session is open."""
        with self._answered():
            async with self._broker.queue.turn(0, is_large=True, may_wait=False):
                if await self._answer_at_once(call, session):
                    return
            await self._answer_later()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Have a request that fails answered, or its connection closed; then wait no more."""
        try:
            yield
        except MalformedBytes as error:
            self._reply.close(f"api 1 v{self._version}: {error}")
        except QuipuError as error:  # of its session
            self._reply.send(encode_fetch_response(
                self._correlation_id, self._version, error_code=error.code, topics=[]))
        except Exception as error:
            self._reply.close(f"fetch failed: {error!r}")
            raise
        finally:
            for partition in self._waits_for:
                partition.leave(self)

    def _open(self, call: FetchCall) -> Generator[None, None, FetchSession]:
        """The session of the request, with all that it names."""
        sessions = self._broker.fetch_sessions
        session = sessions.open(
            self._client, call.session_id, call.session_epoch, ([], call.forgotten),
            by_id=self._version >= VERSION_IDS)
        named = iter(call.targets)
        while step := [FetchTarget(*target) for target in islice(named, NAMED_STEP)]:
            sessions.update(self._client, session, step, ())
            yield
        return session

    async def _answer_at_once(self, call: FetchCall, session: FetchSession) -> bool:
        """Answer, unless the request waits for records that are not there."""
        self._call, self._session = call, session
        self._reader = (call.max_bytes, self._version, call.replica_id == DIRTY_READER,
                        self._client)
        self._missing = call.min_bytes
        found = await self._turns.run(self._read(waits=call.max_wait > 0))
        self._missing -= found.size
        if (found.size >= call.min_bytes or found.failed or call.max_wait <= 0
                or not self._broker.fetch_sessions.hold(self._client, session)):
            await self._answer(found)
            return True
        return False

    async def _answer_later(self) -> None:
        """Answer when enough has come, or when the client's patience is over."""
        try:
            await self._wait()
            async with self._broker.queue.turn(0, is_large=True, may_wait=False):
                await self._answer(await self._turns.run(self._read(waits=False)))
        finally:
            self._broker.fetch_sessions.release(self._client, self._session)

    # -- reading

    def _read(self, *, waits: bool) -> Generator[None, None, Found]:
        """Read every partition once; with `waits`, hear of what comes to it from then on (B1)."""
        broker, session = self._broker, self._session
        targets = list(session.targets.values())
        parts: list[Answered] = []
        size, failed = 0, False
        for start in range(0, len(targets), READ_STEP):
            step = targets[start:start + READ_STEP]
            if waits:
                self._wait_for(step)
            found = read(broker, session, self._reader, step, size)
            parts += found.parts
            size = found.size
            failed = failed or found.failed
            yield
        return Found(parts, size, failed)

    # -- waiting

    def _wait_for(self, targets: Iterable[FetchTarget]) -> None:
        for target in targets:
            partition = self._broker.partitions.find_for_wire(target.topic, target.partition)
            if partition is not None:
                self._waits_for.append(partition)
                partition.wait(self)

    async def _wait(self) -> None:
        if self._missing <= 0:
            return  # it came while others were read
        broker, loop = self._broker, asyncio.get_running_loop()
        self._woken = loop.create_future()
        patience_ms = min(self._call.max_wait, broker.settings.fetch_max_wait_ms)
        timer = loop.call_at(self._started + patience_ms / 1000, self.finish)
        broker.partitions.waiting[self] = None
        broker.stats.fetch_waiters += 1
        try:
            await self._woken
        finally:
            timer.cancel()
            broker.partitions.waiting.pop(self, None)
            broker.stats.fetch_waiters -= 1

    def advanced(self, size: int) -> None:
        """More can be read."""
        self._missing = self._missing - size if size else 0
        if self._missing <= 0:
            self.finish()

    def finish(self) -> None:
        """The wait is over: answer with what there is."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    # -- answering

    async def _answer(self, found: Found) -> None:
        """Answer with `found`, in a session with what is new of it."""
        broker, session, version = self._broker, self._session, self._version
        parts = found.parts
        if session.id != NO_SESSION:
            parts = await self._turns.run(self._news(parts))
        broker.stats.fetched_bytes += found.size
        leaders: dict[Key, Leader] = {}
        if found.failed and version >= VERSION_LEADERS:
            leaders = await self._turns.run(self._leaders(parts))
        buffers = await self._turns.run(fetch_response_steps(
            self._correlation_id, version, session_id=session.id,
            committed_only=self._call.isolation_level == READ_COMMITTED, topics=by_topic(parts),
            leaders=leaders, endpoints=endpoints(broker, leaders.values())))
        own_size = sum(len(buffer) for buffer in buffers if isinstance(buffer, bytearray))
        self._reply.send_large(buffers, own_size)

    def _news(self, parts: list[Answered]) -> Generator[None, None, list[Answered]]:
        told: list[Answered] = []
        for start in range(0, len(parts), STEP_PARTS):
            told += news(self._session, parts[start:start + STEP_PARTS])
            yield
        return told

    def _leaders(self, parts: list[Answered]) -> Generator[None, None, dict[Key, Leader]]:
        """Who leads what this node does not."""
        leaders: dict[Key, Leader] = {}
        for number, (target, part) in enumerate(parts):
            if part.error_code in MOVED:
                leader = find_leader(self._broker, target.key)
                if leader is not None:
                    leaders[target.key] = leader
            if number % STEP_PARTS == 0:
                yield
        return leaders
