"""Fetch — API key 1, versions 4-18.

Behaviour
    * sends slices of the log as they lie on disk; only batches of clients, never internal ones
    * waits up to max_wait for min_bytes, no longer than fetch.max.wait.ms, and only for as long as
      the client is there; an error anywhere is answered at once
    * the first batch is sent even if it exceeds every limit, so that a client always gets on
    * incremental sessions: see fetch_sessions.py
    * one of many partitions, named or in a session, takes turns with others: large_fetch.py
    * nothing is read twice by a slow client: its next request is read when this answer has left
    * the head of a chain sends consumers to its tail; other nodes that serve answer, and the rest
      say who leads: see fetching.py
    * replica id -2 reads all that a node has, committed or not (`--dirty`)

Versions
    v7   incremental sessions     v9   leader epochs are checked     v11  rack of the client
    v12  flexible encoding, diverging epochs     v13  topics by id     v15  replica state
    v16  node endpoints     v17, v18  fields of replicas, which fetch in another way here
"""

import asyncio
from struct import Struct
from typing import Final

from quipu.broker import large_fetch
from quipu.broker.context import Broker
from quipu.broker.fetch_sessions import NO_SESSION, FetchSession, FetchTarget
from quipu.broker.fetching import (
    DIRTY_READER,
    MOVED,
    READ_COMMITTED,
    VERSION_IDS,
    VERSION_LEADERS,
    Found,
    Reader,
    by_topic,
    news,
    read,
)
from quipu.broker.partition import Partition
from quipu.broker.reply import Reply
from quipu.broker.request_queue import LARGE_SIZE
from quipu.broker.routing import endpoints, find_leaders
from quipu.model.errors import MalformedBytes, QuipuError
from quipu.wire.fast import encode_one_fetched, parse_fetch
from quipu.wire.fetch_codec import FetchCall, encode_fetch_response

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
REQUEST_SIZE_MAX: Final = 2 << 20  # some 60,000 partitions; each costs far more than its bytes
TARGETS_MAX: Final = 512  # partitions of a fetch that is served as it comes, in one go

_HEAD: Final = Struct(">hhi")


def fetch(broker: Broker, reply: Reply, frame: memoryview) -> None:
    """Answer with records, now or as soon as there are enough of them."""
    _, version, correlation_id = _HEAD.unpack_from(frame)
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise MalformedBytes(f"Fetch v{version} is not served; v{VERSION_MIN} to "
                             f"v{VERSION_MAX} are")
    if len(frame) > LARGE_SIZE:
        if len(frame) > REQUEST_SIZE_MAX:
            raise MalformedBytes(
                f"a fetch of {len(frame)} bytes; at most {REQUEST_SIZE_MAX} are taken")
        large_fetch.begin(broker, reply, frame, (correlation_id, version))
        return
    call = parse_fetch(frame, -1, version)
    client = reply.fetch_client
    try:
        session = broker.fetch_sessions.open(
            client, call.session_id, call.session_epoch,
            ([FetchTarget(*target) for target in call.targets], call.forgotten),
            by_id=version >= VERSION_IDS)
    except QuipuError as error:
        reply.send(encode_fetch_response(
            correlation_id, version, error_code=error.code, topics=[]))
        return
    if len(session.targets) > TARGETS_MAX:
        large_fetch.go_on(broker, reply, (correlation_id, version), call, session)
        return
    reader = call.max_bytes, version, call.replica_id == DIRTY_READER, client
    found = read(broker, session, reader)
    answer = _Answer(broker, reply, (correlation_id, reader), call, session)
    if (found.size >= call.min_bytes or found.failed or call.max_wait <= 0
            or not broker.fetch_sessions.hold(client, session)):
        answer.send(found)
    else:
        answer.wait(call.min_bytes - found.size)


class _Answer:
    """The answer to one request, and its wait for records: the `Waiter` of its partitions."""

    __slots__ = (
        "_broker", "_call", "_head", "_missing", "_reply", "_session", "_timer", "_waits_for",
    )

    def __init__(
        self,
        broker: Broker,
        reply: Reply,
        head: tuple[int, Reader],
        call: FetchCall,
        session: FetchSession,
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._head = head  # correlation id, who reads
        self._call = call
        self._session = session

    def wait(self, missing: int) -> None:
        """Answer when `missing` more bytes have come, or when the client's patience is over."""
        broker = self._broker
        self._missing = missing
        self._waits_for: list[Partition] = []
        for target in self._session.targets.values():
            partition = broker.partitions.find_for_wire(target.topic, target.partition)
            if partition is not None:
                self._waits_for.append(partition)
                partition.wait(self)
        broker.partitions.waiting[self] = None
        broker.stats.fetch_waiters += 1
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            min(self._call.max_wait, broker.settings.fetch_max_wait_ms) / 1000, self.finish)
        self._reply.when_lost(self._end)

    def advanced(self, size: int) -> None:
        """More can be read.  Answer at the end of this turn, with all that it brings."""
        was_missing = self._missing > 0
        self._missing = self._missing - size if size else 0
        if was_missing and self._missing <= 0:
            self._broker.partitions.finish_soon(self)

    def finish(self) -> None:
        """The wait is over: answer with what there is."""
        if self._end():
            self.send(read(self._broker, self._session, self._head[1]))

    def _end(self) -> bool:
        """Wait no longer; false if the wait had ended before."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        for partition in self._waits_for:
            partition.leave(self)
        broker = self._broker
        broker.partitions.waiting.pop(self, None)
        broker.stats.fetch_waiters -= 1
        broker.fetch_sessions.release(self._reply.fetch_client, self._session)
        return True

    def send(self, found: Found) -> None:
        """Answer with `found`, in a session with what is new of it."""
        session = self._session
        parts = found.parts if session.id == NO_SESSION else news(session, found.parts)
        correlation_id, reader = self._head
        version = reader[1]
        committed_only = self._call.isolation_level == READ_COMMITTED
        self._broker.stats.fetched_bytes += found.size
        if found.failed and version >= VERSION_LEADERS:
            leaders = find_leaders(self._broker, (
                (target.topic, target.partition) for target, part in parts
                if part.error_code in MOVED))
            self._reply.send(encode_fetch_response(
                correlation_id, version, session_id=session.id, committed_only=committed_only,
                topics=by_topic(parts), leaders=leaders,
                endpoints=endpoints(self._broker, leaders.values())))
        elif len(parts) == 1:
            target, part = parts[0]
            self._reply.send(encode_one_fetched(
                correlation_id, version, target.topic, part, session_id=session.id,
                committed_only=committed_only))
        else:
            self._reply.send(encode_fetch_response(
                correlation_id, version, session_id=session.id, committed_only=committed_only,
                topics=by_topic(parts)))
