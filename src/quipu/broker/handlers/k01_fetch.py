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
from quipu.broker.partition import Partition
from quipu.broker.reply import Reply
from quipu.model.errors import Code, MalformedBytes, OffsetOutOfRange, QuipuError
from quipu.model.ids import Epoch, Offset
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

Answer = tuple[list[tuple[FetchTarget, FetchedPart]], int, bool]  # parts, size, any error?


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
    _Call(broker, reply, version, correlation_id, request, session).start()


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

    def __init__(  # noqa: PLR0917 what belongs to one request
        self,
        broker: Broker,
        reply: Reply,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: FetchSession,
    ) -> None:
        self._broker = broker
        self._reply = reply
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._session = session
        self._missing = 0  # bytes until the wait is over
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for: list[Partition] = []

    def start(self) -> None:
        request = self._request
        answer = self._read()
        _, size, failed = answer
        if size >= request.min_bytes or failed or request.max_wait <= 0 or not self._waitable():
            self._send(answer)
            return
        self._missing = request.min_bytes - size
        for partition in self._waits_for:
            partition.wait(self)
        self._broker.stats.fetch_waiters += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(request.max_wait, WAIT_MS_MAX) / 1000, self.finish)
        self._broker.partitions.waiting.add(self)

    def _waitable(self) -> bool:
        """Find whom to wait for; a fetch of nothing still waits its time, as with Kafka."""
        find = self._broker.partitions.find_for_wire
        for target in self._session:
            partition = find(target.topic, target.partition)
            if partition is not None:
                self._waits_for.append(partition)
        return True

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
        self._send(self._read())

    # -- reading

    def _read(self) -> Answer:
        size_left = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        parts: list[tuple[FetchTarget, FetchedPart]] = []
        size = 0
        failed = False
        for target in self._session:
            part = self._read_one(target, max(size_left, 0), min_one=size == 0)
            parts.append((target, part))
            size += part.size
            size_left -= part.size
            failed = failed or part.error_code != 0 or part.diverging_end_offset >= 0
        return parts, size, failed

    def _read_one(self, target: FetchTarget, size_left: int, *, min_one: bool) -> FetchedPart:
        partition = self._broker.partitions.find_for_wire(target.topic, target.partition)
        if partition is None:
            return FetchedPart(target.partition, self._unknown(target))
        if partition.failed is not None:
            return FetchedPart(target.partition, partition.failed.code)
        log = partition.log
        code = check_epoch(target.leader_epoch, partition.leader_epoch)
        if code:
            return FetchedPart(target.partition, code)
        high_watermark = partition.high_watermark
        diverging = _diverging(target, partition)
        if diverging is not None:
            return FetchedPart(
                target.partition, 0, high_watermark, high_watermark, log.log_start_offset,
                diverging_epoch=diverging[0], diverging_end_offset=diverging[1])
        try:
            records = log.read(
                Offset(target.offset), min(size_left, target.size_max),
                end=high_watermark, min_one=min_one)
        except OffsetOutOfRange:
            return FetchedPart(
                target.partition, Code.OFFSET_OUT_OF_RANGE, high_watermark, high_watermark,
                log.log_start_offset)
        except QuipuError as error:
            return FetchedPart(target.partition, error.code)
        size = sum(map(len, records))
        return FetchedPart(
            target.partition, 0, high_watermark, high_watermark, log.log_start_offset,
            records, size)

    def _unknown(self, target: FetchTarget) -> Code:
        if isinstance(target.topic, str) or self._broker.partitions.knows_id(target.topic):
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        return Code.UNKNOWN_TOPIC_ID

    # -- answering

    def _send(self, answer: Answer) -> None:
        parts, size, _ = answer
        session = self._session
        topics: dict[str | bytes, list[FetchedPart]] = {}
        for target, part in parts:
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
        self._broker.stats.fetched_bytes += size
        self._reply.send(encode_fetch_response(
            self._correlation_id, self._version, session_id=session.id,
            committed_only=self._request.isolation_level == READ_COMMITTED,
            topics=list(topics.items())))


def check_epoch(asked: int, current: Epoch) -> int:
    """A client that knows another leader than there is must ask for metadata first."""
    if asked < 0 or asked == current:
        return 0
    return Code.FENCED_LEADER_EPOCH if asked < current else Code.UNKNOWN_LEADER_EPOCH


def _diverging(target: FetchTarget, partition: Partition) -> tuple[int, int] | None:
    """Where the client's history and this log part ways, if they do (KIP-595)."""
    if target.last_fetched_epoch < 0:
        return None
    epoch, end = partition.log.epoch_end(Epoch(target.last_fetched_epoch))
    if epoch == target.last_fetched_epoch and end >= target.offset:
        return None
    return epoch, end
