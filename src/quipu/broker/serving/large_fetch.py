"""Fetch of many partitions, named or in a session: it takes turns with other requests.

Such a request waits undecoded for its turn.  Its partitions are read a few at a time, and its
response is encoded in steps.  While it waits for records it gives up its place, and it reads all
partitions again when there are enough, or when the client's max wait is over.

Invariants
    broker.serving.B1  the fetch is added to a partition's waiters before the partition is read, so
                       that it misses no advance; if it is notified of records that it has read
                       already, it responds with fewer bytes than the client's min_bytes
    broker.serving.B2  later requests of its connection wait for its response, so no other request
                       uses its session meanwhile; if the session is ended all the same, the request
                       is served without one
    broker.serving.B3  if the client disconnects, the request ends at once
    broker.serving.B4  it counts as a large request while it reads, and as a waiting fetch while it
                       waits; its response counts until it is sent

Not here: reading (fetching.py), sessions (fetch_sessions.py), whose turn it is (runtime/turns.py).
"""

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker
from quipu.broker.serving.fetch_sessions import NO_SESSION, FetchSession, FetchTarget
from quipu.broker.serving.fetching import (
    DIRTY_READER,
    MOVED,
    READ_COMMITTED,
    VERSION_IDS,
    VERSION_LEADERS,
    FetchedTarget,
    FetchPass,
    Reader,
    by_topic,
    news,
    read,
    wait_ms,
)
from quipu.broker.serving.reply import Reply
from quipu.broker.serving.routing import Key, PartitionLeader, endpoints, find_leader
from quipu.broker.serving.zone_views import NOWHERE, nodes_nearer
from quipu.model.errors import MalformedBytes, QuipuError
from quipu.model.partition_log import PartitionLog, PendingRead
from quipu.runtime.spawn import spawn
from quipu.wire.fast import parse_fetch
from quipu.wire.fetch_codec import FetchCall, encode_fetch_response, fetch_response_steps
from quipu.wire.produce_codec import STEP_PARTS

READ_STEP: Final = 8  # partitions read in one step; each may give a megabyte, which is checked
NAMED_STEP: Final = 256  # partitions added to a session in one step

Head = tuple[int, int]  # correlation id, version


def begin(broker: Broker, reply: Reply, frame: memoryview, head: Head) -> None:
    """Serve the request in `frame` when it is its turn, and respond."""
    if not broker.queue.has_room(len(frame)):
        broker.stats.requests_refused += 1
        raise MalformedBytes("requests that wait for their turn use all of the memory for them "
                             "(queued.max.request.bytes); send it again later")
    request = _LargeFetch(broker, reply, head)
    _spawn(reply, request.run(bytes(frame)))  # it is borrowed


def go_on(
    broker: Broker, reply: Reply, head: Head, call: FetchCall, session: FetchSession
) -> None:
    """Serve a small request that uses a session of many partitions."""
    # Later requests wait for the response: broker.serving.B2.
    _spawn(reply, _LargeFetch(broker, reply, head).run_in_session(call, session))


def _spawn(reply: Reply, work: Coroutine[Any, Any, None]) -> None:
    reply.when_lost(spawn(work, "large fetch").cancel)  # broker.serving.B3


class _LargeFetch:
    """One request, from its bytes to its response: the `FetchWaiter` of its partitions."""

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
        self._waits_for: list[PartitionLog] = []
        self._coming: list[PendingRead] = []  # reads whose bytes have not arrived
        self._awaited = 0  # how many of them have not arrived
        self._missing = 0  # bytes that must become readable before it responds
        self._woken: asyncio.Future[None] | None = None  # set while it waits
        self._is_over = False  # it responds after the next pass, whatever that finds

    async def run(self, frame: bytes) -> None:
        """Serve the request in `frame`."""
        with self._errors_sent():
            async with self._broker.queue.turn(len(frame), is_large=True, may_wait=False):
                call = parse_fetch(memoryview(frame), -1, self._version)
                session = await self._turns.run(self._open(call))
                if await self._respond_at_once(call, session):
                    return
            await self._respond_later()

    async def run_in_session(self, call: FetchCall, session: FetchSession) -> None:
        """Serve a request that is decoded, and whose session is open."""
        with self._errors_sent():
            async with self._broker.queue.turn(0, is_large=True, may_wait=False):
                if await self._respond_at_once(call, session):
                    return
            await self._respond_later()

    @contextmanager
    def _errors_sent(self) -> Iterator[None]:
        """Respond to an error, or close the connection; then remove the waiters."""
        try:
            yield
        except MalformedBytes as error:
            self._reply.close(f"api 1 v{self._version}: {error}")
        except QuipuError as error:  # of its session
            self._reply.send(encode_fetch_response(
                self._correlation_id, self._version, error_code=code_of(error), topics=[]))
        except Exception as error:
            self._reply.close(f"fetch failed: {error!r}")
            raise
        finally:
            for partition in self._waits_for:
                partition.remove_waiter(self)
            self._cancel()

    def _open(self, call: FetchCall) -> Generator[None, None, FetchSession]:
        """The session of the request, with all partitions that the request names."""
        sessions = self._broker.fetch_sessions
        session = sessions.open(
            self._client, call.session_id, call.session_epoch, ([], call.forgotten),
            by_id=self._version >= VERSION_IDS)
        named = iter(call.targets)
        while step := [FetchTarget(*target) for target in islice(named, NAMED_STEP)]:
            sessions.update(self._client, session, step, ())
            yield
        return session

    async def _respond_at_once(self, call: FetchCall, session: FetchSession) -> bool:
        """Read once and respond; returns False if the request must wait for more records."""
        self._call, self._session = call, session
        near = (nodes_nearer(self._broker, call.rack_id, self._reply.listener)
                if call.rack_id else NOWHERE)
        self._reader = (call.max_bytes, self._version, call.replica_id == DIRTY_READER,
                        self._client, near)
        self._missing = call.min_bytes
        if call.max_wait > 0:
            found = await self._turns.run(self._read(is_first=True))
        else:
            found = await self._turns.run(self._read(is_last=True))
        self._missing -= found.size
        if ((found.size >= call.min_bytes and not found.coming) or found.failed
                or call.max_wait <= 0
                or not self._broker.fetch_sessions.hold(self._client, session)):
            await self._respond(found)
            return True
        return False

    def _cancel(self) -> None:
        """Cancel the reads whose bytes have not arrived."""
        for pending in self._coming:
            pending.cancel()
        self._coming = []

    async def _respond_later(self) -> None:
        """Respond when enough can be read, or when the client's max wait is over."""
        try:
            while True:
                await self._wait()
                # broker.serving.B4
                async with self._broker.queue.turn(0, is_large=True, may_wait=False):
                    found, is_waiting = await self._read_again()
                    if not is_waiting or self._is_over or found.size or found.failed:
                        await self._respond(found)
                        return
        finally:
            self._broker.fetch_sessions.release(self._client, self._session)

    async def _read_again(self) -> tuple[FetchPass, bool]:
        """Read after a wait; and whether bytes had to be fetched, or have to be fetched now.

        If so, and there are no records, the wait goes on: those of a diskless topic that another
        node has written have to be fetched after its commit is known.
        """
        arrived, self._coming = self._coming, []
        self._missing = self._call.min_bytes  # broker.serving.B1
        try:
            found = await self._turns.run(self._read(is_last=self._is_over or bool(arrived)))
        finally:  # after the pass, which uses the bytes that have arrived
            for pending in arrived:
                pending.cancel()
        self._missing -= found.size
        return found, bool(found.coming or arrived)

    # -- reading

    def _read(
        self, *, is_first: bool = False, is_last: bool = False
    ) -> Generator[None, None, FetchPass]:
        """Read every partition once; in the first pass of several, become a waiter of each."""
        # broker.serving.B1
        broker, session = self._broker, self._session
        targets = list(session.targets.values())
        parts: list[FetchedTarget] = []
        failed, found = False, None
        for start in range(0, len(targets), READ_STEP):
            step = targets[start:start + READ_STEP]
            if is_first:
                self._wait_for(step)
            found = read(broker, session, self._reader, step, before=found, is_last=is_last)
            parts += found.parts
            self._coming += found.coming  # so that they are cancelled in any case
            failed = failed or found.failed
            yield
        return FetchPass(parts, found.size if found else 0, failed, self._coming)

    # -- waiting

    def _wait_for(self, targets: Iterable[FetchTarget]) -> None:
        for target in targets:
            partition = self._broker.partitions.find_for_wire(target.topic, target.partition)
            if partition is not None:
                self._waits_for.append(partition)
                partition.add_waiter(self)

    async def _wait(self) -> None:
        if self._missing <= 0 and not self._coming:
            return  # enough was appended while the partitions were read
        broker, loop = self._broker, asyncio.get_running_loop()
        self._woken = loop.create_future()
        patience_ms = wait_ms(broker, self._call.max_wait, self._coming)
        timer = loop.call_at(self._started + patience_ms / 1000, self._time_over)
        broker.partitions.waiting[self] = None
        broker.stats.fetch_waiters += 1
        self._awaited = len(self._coming)
        for pending in self._coming:
            pending.when_arrived(self._arrived)
        try:
            await self._woken
        finally:
            timer.cancel()
            broker.partitions.waiting.pop(self, None)
            broker.stats.fetch_waiters -= 1

    def advanced(self, size: int) -> None:
        """Note that more can be read; bytes that have not arrived are waited for first."""
        self._missing = self._missing - size if size else 0
        self._is_over = self._is_over or size == 0  # something else has changed: respond soon
        if size == 0 or (self._missing <= 0 and not self._coming):
            self.finish()

    def _arrived(self) -> None:
        self._awaited -= 1
        if self._awaited == 0:
            self.finish()

    def _time_over(self) -> None:
        self._is_over = True
        self.finish()

    def finish(self) -> None:
        """End the wait; the request then responds with what can be read, or waits for bytes."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    # -- responding

    async def _respond(self, found: FetchPass) -> None:
        """Respond with `found`; in an incremental session, only with what has changed."""
        broker, session, version = self._broker, self._session, self._version
        parts = found.parts
        if session.id != NO_SESSION:
            parts = await self._turns.run(self._news(parts))
        broker.stats.fetched_bytes += found.size
        leaders: dict[Key, PartitionLeader] = {}
        if found.failed and version >= VERSION_LEADERS:
            leaders = await self._turns.run(self._leaders(parts))
        buffers = await self._turns.run(fetch_response_steps(
            self._correlation_id, version, session_id=session.id,
            committed_only=self._call.isolation_level == READ_COMMITTED, topics=by_topic(parts),
            leaders=leaders, endpoints=endpoints(
                broker, leaders.values(), self._reply.listener)))
        own_size = sum(len(buffer) for buffer in buffers if isinstance(buffer, bytearray))
        self._reply.send_large(buffers, own_size)

    def _news(self, parts: list[FetchedTarget]) -> Generator[None, None, list[FetchedTarget]]:
        reported: list[FetchedTarget] = []
        for start in range(0, len(parts), STEP_PARTS):
            reported += news(self._session, parts[start:start + STEP_PARTS])
            yield
        return reported

    def _leaders(
        self, parts: list[FetchedTarget]
    ) -> Generator[None, None, dict[Key, PartitionLeader]]:
        """The leaders of the partitions that this node does not serve."""
        leaders: dict[Key, PartitionLeader] = {}
        for number, (target, part) in enumerate(parts):
            if part.error_code in MOVED:
                leader = find_leader(self._broker, target.key)
                if leader is not None:
                    leaders[target.key] = leader
            if number % STEP_PARTS == 0:
                yield
        return leaders
