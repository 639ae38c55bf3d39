"""Fetch — API key 1, versions 4-18.

Behaviour
    * sends slices of the log as they lie on disk; only batches of clients, never internal ones
    * waits up to max_wait for min_bytes; an error anywhere is answered at once
    * the first batch is sent even if it exceeds every limit, so that a client always gets on
    * incremental sessions: see fetch_sessions.py
    * nothing is read twice by a slow client: its next request is read when this answer has left

Versions
    v7   incremental sessions     v9   leader epochs are checked     v11  rack of the client
    v12  flexible encoding, diverging epochs     v13  topics by id     v15  replica state
    v16  node endpoints     v17, v18  fields of replicas, which this node does not serve
"""

import asyncio
from collections.abc import Iterator
from struct import Struct
from typing import Final

from quipu.broker.context import Broker
from quipu.broker.fetch_sessions import FetchSession, FetchTarget, Key
from quipu.broker.fetching import Found, read
from quipu.broker.partition import Partition
from quipu.broker.reply import Reply
from quipu.model.errors import MalformedBytes, QuipuError
from quipu.wire.fetch_codec import FetchedPart, encode_fetch_response
from quipu.wire.messages.k01_fetch import FetchRequest
from quipu.wire.produce_codec import body_position

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
VERSION_FLEXIBLE: Final = 12
VERSION_TOPIC_IDS: Final = 13
WAIT_MS_MAX: Final = 10 * 60_000
READ_COMMITTED: Final = 1

_HEAD: Final = Struct(">hhi")


def fetch(broker: Broker, reply: Reply, frame: memoryview) -> None:
    """Answer with records, now or as soon as there are enough of them."""
    _, version, correlation_id = _HEAD.unpack_from(frame)
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise MalformedBytes(f"Fetch v{version} is not served; v{VERSION_MIN} to "
                             f"v{VERSION_MAX} are")
    position = body_position(frame, flexible=version >= VERSION_FLEXIBLE)
    request = FetchRequest.decode(frame[position:], version)
    try:
        session = broker.fetch_sessions.open(
            request.session_id, request.session_epoch,
            list(_targets(request, version)), list(_forgotten(request, version)))
    except QuipuError as error:
        reply.send(encode_fetch_response(
            correlation_id, version, error_code=error.code, topics=[]))
        return
    _Call(broker, reply, (version, correlation_id), request, session).start()


def _targets(request: FetchRequest, version: int) -> Iterator[FetchTarget]:
    with_ids = version >= VERSION_TOPIC_IDS
    for topic in request.topics:
        name = topic.topic_id.bytes if with_ids else topic.topic
        for part in topic.partitions:
            yield FetchTarget(
                name, part.partition, part.fetch_offset, part.partition_max_bytes,
                part.current_leader_epoch, part.last_fetched_epoch)


def _forgotten(request: FetchRequest, version: int) -> Iterator[Key]:
    with_ids = version >= VERSION_TOPIC_IDS
    for topic in request.forgotten_topics_data:
        name = topic.topic_id.bytes if with_ids else topic.topic
        for partition in topic.partitions:
            yield name, partition


class _Call:
    """One request, and its wait for records.  It is the `Waiter` of its partitions."""

    __slots__ = (
        "_broker", "_correlation_id", "_missing", "_reply", "_request", "_scheduled", "_session",
        "_timer", "_version", "_waits_for",
    )

    def __init__(
        self,
        broker: Broker,
        reply: Reply,
        head: tuple[int, int],
        request: FetchRequest,
        session: FetchSession,
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._version, self._correlation_id = head
        self._request = request
        self._session = session
        self._missing = 0  # bytes until the wait is over
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for: list[Partition] = []

    def start(self) -> None:
        request = self._request
        found = read(self._broker, self._session, request.max_bytes)
        if found.size >= request.min_bytes or found.failed or request.max_wait <= 0:
            self._send(found)
            return
        self._missing = request.min_bytes - found.size
        self._wait()
        self._broker.stats.fetch_waiters += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(request.max_wait, WAIT_MS_MAX) / 1000, self.finish)
        self._broker.partitions.waiting.add(self)

    def _wait(self) -> None:
        find = self._broker.partitions.find_for_wire
        for target in self._session:
            partition = find(target.topic, target.partition)
            if partition is not None:
                self._waits_for.append(partition)
                partition.wait(self)

    def advanced(self, size: int) -> None:
        """More can be read.  Answer at the end of this turn, with all that it brings."""
        self._missing -= size
        if (self._missing <= 0 or size == 0) and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.finish)

    def finish(self) -> None:
        """The wait is over: answer with what there is."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for partition in self._waits_for:
            partition.leave(self)
        self._broker.partitions.waiting.discard(self)
        self._broker.stats.fetch_waiters -= 1
        self._send(read(self._broker, self._session, self._request.max_bytes))

    def _send(self, found: Found) -> None:
        session = self._session
        topics: dict[str | bytes, list[FetchedPart]] = {}
        for target, part in found.parts:
            told = (part.high_watermark, part.log_start_offset)
            if part.size:
                session.served(target.key)
            elif (
                session.incremental
                and part.error_code == 0
                and target.told == told
                and part.diverging_end_offset < 0
            ):
                continue
            target.told = told if part.error_code == 0 else None
            topics.setdefault(target.topic, []).append(part)
        self._broker.stats.fetched_bytes += found.size
        self._reply.send(encode_fetch_response(
            self._correlation_id, self._version, session_id=session.id,
            committed_only=self._request.isolation_level == READ_COMMITTED,
            topics=list(topics.items())))
