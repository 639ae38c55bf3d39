"""Reads ranges of partitions as record batches, byte for byte as the broker stores them.

    for fetched in fetch(cluster, [Range("orders", 0, 0, 1000), Range("orders", 1, 20, 30)]):
        fetched.records                # whole batches; the first may begin before the range

Each broker has one outstanding request, for all the partitions that are read there; while the
caller works on a response, the broker makes the next one.  Partitions come in any order, the
batches of one partition in the order of their offsets.

Invariants
    client.F1  every record of a range that the log holds is handed out once, or an error is raised
    client.F2  batches after the end of a range are not handed out
    client.F3  records that are no longer in the log are passed to `on_loss`, which may raise
    client.F4  a change of leader or a restart of a broker is retried for default.api.timeout.ms
    client.F5  records of a topic that was created under the same name later are never handed out
               for a range that has its topic's id (if the broker sends topic ids at all)

Reading begins at the leader, which may name another replica to read from; after a failure there
the client reads from the leader again.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.client.cluster import Cluster
from quipu.client.connection import BrokerConnection
from quipu.client.errors import (
    ClientError,
    ConnectionFailed,
    DataLost,
    ResponseTooLate,
    TopicRecreated,
    UnknownTopic,
    broker_refused,
)
from quipu.client.ranges import Range
from quipu.client.retry import Retry
from quipu.model.errors import Code, ErrorKind, MalformedBytes
from quipu.model.ids import ZERO_UUID, TopicPartition
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quipu.wire.record_batch import BATCH_LENGTH_MIN, HEADER_SIZE, LENGTH_START, MAGIC

_VERSION_BY_ID: Final = 13  # the first version that gives topics by their ids
_START: Final = Struct(">qi")  # base offset, batch length
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_POSITION: Final = 23
_MAGIC_POSITION: Final = 16

SIZE_MAX: Final = 1 << 30

OnLoss = Callable[[DataLost], None]


class FetchedBatches(NamedTuple):
    """Some batches of one range, and what is needed to read them."""

    range: Range
    first: int  # the requested offset; the first batch may begin before it
    next_offset: int  # after the last batch
    records: memoryview  # whole batches
    aborted: tuple[tuple[int, int], ...]  # producer id and first offset of aborted transactions
    high_watermark: int


def raise_loss(loss: DataLost) -> None:
    """Raise the loss: what `fetch` does about lost data by default."""
    raise loss


def fetch(
    cluster: Cluster, ranges: Iterable[Range], *, on_loss: OnLoss = raise_loss
) -> Iterator[FetchedBatches]:
    """Every batch of every range, partitions interleaved; no partition may be in two ranges."""
    fetching = _Fetching(cluster, ranges, on_loss)
    try:
        yield from fetching.run()
    finally:
        fetching.end()


class _Cursor:
    """How far one range was read."""

    def __init__(self, wanted: Range, cluster: Cluster) -> None:
        self.range = wanted
        self.partition = wanted.topic_partition
        self.next = wanted.first
        self.end = wanted.end
        self.is_bound = wanted.topic_id != ZERO_UUID  # only the topic with this id may be read
        self.topic_id = wanted.topic_id if self.is_bound else cluster.topic(wanted.topic).topic_id
        self.replica = -1  # the node to read from instead of the leader
        self.replica_until = 0.0
        self.not_before = 0.0  # when to try again after a failure
        self.size_max = cluster.settings.max_partition_fetch_bytes
        self._settings = cluster.settings
        self._retry: Retry | None = None  # since the first failure; None while reading goes well

    @property
    def retry(self) -> Retry:
        if self._retry is None:
            self._retry = Retry(self._settings)
        return self._retry

    def note_success(self) -> None:
        """Forget earlier failures: the next one is retried for the whole time again."""
        self._retry = None

    def node(self, cluster: Cluster, now: float) -> int:
        """The node to read from: a replica that the leader named, or the leader."""
        if self.replica >= 0 and now < self.replica_until:
            return self.replica
        self.replica = -1
        return cluster.leader(self.partition).node_id


class _OutstandingFetch(NamedTuple):
    connection: BrokerConnection
    node_id: int
    cursors: list[_Cursor]


class _Fetching:
    """One call of `fetch`."""

    def __init__(self, cluster: Cluster, ranges: Iterable[Range], on_loss: OnLoss) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._on_loss = on_loss
        self._under_way: deque[_OutstandingFetch] = deque()
        self._connections: dict[int, BrokerConnection] = {}
        self._stale: set[str] = set()  # topics whose metadata is to be requested again
        wanted = [each for each in ranges if each.size]
        assert len({each.topic_partition for each in wanted}) == len(wanted), wanted
        self._left = list(self._cursors(wanted))

    def run(self) -> Iterator[FetchedBatches]:
        while self._left:
            self._send()
            if not self._under_way:
                self._wait()
                continue
            chunks = self._receive(self._under_way.popleft())
            self._drop_finished()
            if chunks:
                self._send()  # so that brokers work while the caller does
                yield from chunks

    def end(self) -> None:
        """Give the connections back; those with an outstanding response are closed."""
        for connection in self._connections.values():
            self._cluster.give_back(connection)

    def _cursors(self, wanted: list[Range]) -> Iterator[_Cursor]:
        names = {each.topic for each in wanted}
        gone: set[str] = set()
        try:
            self._cluster.refresh_old(names)
        except UnknownTopic:
            gone = names - set(self._cluster.topics())
        self._stale |= {
            each.topic for each in wanted if each.topic not in gone and not may_be_same_topic(
                each.topic_id, self._cluster.topic(each.topic).topic_id)}
        for each in wanted:
            if each.topic in gone:
                self._on_loss(DataLost(
                    each.topic_partition, each.first, each.end, "the topic was deleted"))
            else:
                yield _Cursor(each, self._cluster)

    def _drop_finished(self) -> None:
        self._left = [cursor for cursor in self._left if cursor.next < cursor.end]

    # -- requests

    def _send(self) -> None:
        """Send a request to every broker that has none of ours, for all partitions read there."""
        if self._stale:
            self._refresh()
        now = time.monotonic()
        busy = {id(cursor) for each in self._under_way for cursor in each.cursors}
        nodes = {each.node_id for each in self._under_way}
        targets: dict[int, list[_Cursor]] = {}
        for cursor in self._left:
            if id(cursor) in busy or cursor.not_before > now:
                continue
            node_id = cursor.node(self._cluster, now)
            if node_id < 0:
                self._put_off(cursor, broker_refused(
                    Code.LEADER_NOT_AVAILABLE, f"reading {cursor.partition}"))
            elif node_id not in nodes:
                targets.setdefault(node_id, []).append(cursor)
        for node_id, cursors in targets.items():
            try:
                connection = self._connection(node_id)
                self._ask(connection, cursors)
            except ConnectionFailed as error:
                self._put_off_all(cursors, error)
            else:
                self._under_way.append(_OutstandingFetch(connection, node_id, cursors))

    def _ask(self, connection: BrokerConnection, cursors: list[_Cursor]) -> None:
        settings = self._settings
        topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
        for cursor in cursors:
            name, index = cursor.partition
            topics.setdefault((name, cursor.topic_id), []).append(FetchPartition(
                partition=index, fetch_offset=cursor.next,
                current_leader_epoch=self._cluster.leader(cursor.partition).epoch,
                partition_max_bytes=cursor.size_max))
        request = FetchRequest(
            max_wait=settings.fetch_max_wait_ms, min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes, isolation_level=int(settings.read_committed),
            rack_id=settings.client_rack or "",
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
                    for (name, topic_id), partitions in topics.items()])
        by_name = any(topic_id == ZERO_UUID for _, topic_id in topics)
        seconds = (settings.request_timeout_ms + settings.fetch_max_wait_ms) / 1000
        connection.send(request, highest=_VERSION_BY_ID - 1 if by_name else None, seconds=seconds)

    def _connection(self, node_id: int) -> BrokerConnection:
        known = self._connections.get(node_id)
        if known is None or not known.is_open:
            known = self._connections[node_id] = self._cluster.lend(node_id)
        return known

    # -- responses

    def _receive(self, asked: _OutstandingFetch) -> list[FetchedBatches]:
        try:
            response = asked.connection.receive()
        except ConnectionFailed as error:
            self._put_off_all(asked.cursors, error)
            return []
        assert isinstance(response, FetchResponse)
        if response.error_code:
            self._put_off_all(asked.cursors, broker_refused(response.error_code, "reading"))
            return []
        by_name = {cursor.partition: cursor for cursor in asked.cursors}
        names = {cursor.topic_id: cursor.partition.topic for cursor in asked.cursors}
        chunks, empty = [], []
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for part in topic.partitions:
                cursor = by_name.pop(TopicPartition(name, part.partition_index), None)
                if cursor is None:
                    continue
                if part.error_code:
                    self._take_error(cursor, part)
                elif part.records:
                    chunks += self._take(cursor, part)
                else:
                    empty.append((cursor, part))
        self._put_off_all(by_name.values(), broker_refused(Code.UNKNOWN_SERVER_ERROR, "reading"))
        for cursor, part in empty:
            self._take_nothing(cursor, part, response_is_full=bool(chunks))
        return chunks

    def _take(self, cursor: _Cursor, part: PartitionData) -> list[FetchedBatches]:
        records = part.records
        assert records, "there is something to take"
        size, next_offset = whole_batches(records, cursor.end)
        if not size:
            self._take_no_batch(cursor, records)
            return []
        if next_offset <= cursor.next:
            raise MalformedBytes(f"{cursor.partition}: asked for offset {cursor.next}, "
                                 f"the broker sends batches up to {next_offset}")
        first, cursor.next = cursor.next, next_offset  # client.F1
        cursor.note_success()
        self._left.remove(cursor)
        self._left.append(cursor)  # those that got nothing come first the next time
        aborted = tuple((each.producer_id, each.first_offset)
                        for each in part.aborted_transactions or ())
        return [FetchedBatches(
            cursor.range, first, next_offset, records[:size], aborted, part.high_watermark)]

    def _take_no_batch(self, cursor: _Cursor, records: memoryview) -> None:
        """The response was cut within its first batch, or its first batch lies after the range."""
        base, length = _START.unpack_from(records) if len(records) >= _START.size else (-1, 0)
        if base >= cursor.end:
            cursor.next = cursor.end  # client.F2: the rest of the range was compacted away
        else:
            cursor.size_max = min(max(2 * cursor.size_max, LENGTH_START + length), SIZE_MAX)
            self._put_off(
                cursor, broker_refused(Code.CORRUPT_MESSAGE, f"reading {cursor.partition}"))

    def _take_nothing(
        self, cursor: _Cursor, part: PartitionData, *, response_is_full: bool
    ) -> None:
        """Handle a partition without records: read another replica, retry, or report a loss."""
        replica = part.preferred_read_replica
        if replica >= 0 and replica != cursor.replica:
            cursor.replica = replica
            cursor.replica_until = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        elif response_is_full:  # other partitions took all of its bytes
            cursor.note_success()
        elif cursor.retry.is_over:
            stable = self._settings.read_committed
            end = part.last_stable_offset if stable else part.high_watermark
            self._lose(cursor, cursor.end, f"the log ends at {end}")
        else:
            self._put_off(cursor, ResponseTooLate(f"{cursor.partition}: nothing to read"))

    def _take_error(self, cursor: _Cursor, part: PartitionData) -> None:
        if part.error_code == Code.OFFSET_OUT_OF_RANGE and cursor.replica < 0:
            self._find_start(cursor)
            return
        at_replica, cursor.replica = cursor.replica >= 0, -1
        code = Code.REPLICA_NOT_AVAILABLE if at_replica else part.error_code  # the leader decides
        self._put_off(cursor, broker_refused(code, f"reading {cursor.partition}"))

    def _find_start(self, cursor: _Cursor) -> None:
        """The offset is not in the log: continue at its start, if that is within the range."""
        start = self._cluster.earliest([cursor.partition])[cursor.partition]
        if start <= cursor.next:
            self._lose(
                cursor, cursor.end, "the log was truncated before them, or its topic recreated")
        else:
            self._lose(cursor, min(start, cursor.end), f"the log begins at {start}")

    def _lose(self, cursor: _Cursor, end: int, why: str) -> None:
        loss = DataLost(cursor.partition, cursor.next, end, why)
        self._on_loss(loss)  # client.F3
        cursor.next = end

    # -- failures

    def _put_off_all(self, cursors: Iterable[_Cursor], error: ClientError) -> None:
        for cursor in cursors:
            cursor.replica = -1
            self._put_off(cursor, error)

    def _put_off(self, cursor: _Cursor, error: ClientError) -> None:
        """Read from a partition again a little later (client.F4)."""
        if error.kind not in (ErrorKind.RETRY, ErrorKind.REFRESH) or cursor.retry.is_over:
            raise error
        cursor.not_before = time.monotonic() + cursor.retry.next_pause()
        self._stale.add(cursor.partition.topic)

    def _wait(self) -> None:
        """Wait until the first partition that was put off may be read again."""
        if self._left:
            first = min(cursor.not_before for cursor in self._left)
            time.sleep(max(first - time.monotonic(), 0))

    def _refresh(self) -> None:
        stale, self._stale = self._stale, set()
        try:
            self._cluster.refresh(stale)
        except UnknownTopic:
            gone = stale - set(self._cluster.topics())
            for cursor in self._left:
                if cursor.partition.topic in gone:
                    self._lose(cursor, cursor.end, "the topic was deleted")
        self._drop_finished()
        for cursor in self._left:
            topic_id = self._cluster.topic(cursor.partition.topic).topic_id
            if cursor.next == cursor.range.first and not cursor.is_bound:
                cursor.topic_id = topic_id  # the earlier metadata may be older than the range
            elif not may_be_same_topic(cursor.topic_id, topic_id):
                self._on_loss(TopicRecreated(
                    cursor.partition, cursor.next, cursor.end,
                    recreated_reason(cursor.topic_id, topic_id)))  # client.F5
                cursor.next = cursor.end
        self._drop_finished()


def may_be_same_topic(one: UUID, other: UUID) -> bool:
    """May two ids be of one topic?  Zeros match any id: brokers before Kafka 2.8 send none."""
    return one == other or ZERO_UUID in (one, other)


def recreated_reason(was: UUID, now: UUID) -> str:
    """The reason for a loss, of a topic whose id has changed."""
    return f"the topic was deleted and created anew (its id was {was}, and is {now})"


def whole_batches(records: memoryview, end: int) -> tuple[int, int]:
    """The size of the batches that are whole and begin before `end`, and the offset after them.

    A response may end within a batch: brokers cut it at its size limit.
    """
    position, next_offset = 0, -1
    start, last_delta = _START.unpack_from, _LAST_DELTA.unpack_from
    limit = len(records) - HEADER_SIZE
    while position <= limit:
        base, length = start(records, position)
        size = LENGTH_START + length
        if length < BATCH_LENGTH_MIN or records[position + _MAGIC_POSITION] != MAGIC:
            raise MalformedBytes(
                f"no record batch of version {MAGIC} at offset {base}: it is damaged, or from a "
                "broker before Kafka 0.11")
        if size > len(records) - position or base >= end:
            break
        (delta,) = last_delta(records, position + _LAST_DELTA_POSITION)
        next_offset = base + delta + 1
        position += size
    return position, next_offset
