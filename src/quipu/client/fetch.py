"""Reading ranges of partitions: batches as the broker keeps them, as fast as they come.

    for fetched in fetch(cluster, [Range("orders", 0, 0, 1000), Range("orders", 1, 20, 30)]):
        fetched.records                # whole batches; the first may begin before the range

One request per broker is under way, for all the partitions that are read there; while the caller
works on an answer, the broker makes the next one.  Partitions come in any order, the batches of
one partition in theirs.

Invariants
    F1  every record of a range that the log holds is handed out once, or an error is raised
    F2  batches after the end of a range are not handed out
    F3  what is not there any more goes to `on_loss`, which raises or takes note of it
    F4  leaders that move and brokers that restart are waited for, for default.api.timeout.ms
    F5  records of a topic that was created under the same name later are never handed out for a
        range that knows its topic's id (where the broker tells ids at all)

Reading begins at the leader, which may name another replica to read from; trouble there leads
back to the leader.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.client.cluster import Cluster
from quipu.client.connection import Connection
from quipu.client.errors import (
    AnswerTooLate,
    ClientError,
    ConnectionFailed,
    DataLost,
    TopicRecreated,
    UnknownTopic,
    refused,
)
from quipu.client.ranges import Range
from quipu.client.retry import Retry
from quipu.model.errors import Code, Kind, MalformedBytes
from quipu.model.ids import ZERO_UUID, TopicPartition
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quipu.wire.record_batch import BATCH_LENGTH_MIN, HEADER_SIZE, LENGTH_START, MAGIC

_VERSION_BY_ID: Final = 13  # from here on topics are named by their ids
_START: Final = Struct(">qi")  # base offset, batch length
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_POSITION: Final = 23
_MAGIC_POSITION: Final = 16

SIZE_MAX: Final = 1 << 30

OnLoss = Callable[[DataLost], None]


class Fetched(NamedTuple):
    """Some batches of one range, and what is needed to read them."""

    range: Range
    first: int  # the offset that was asked for; the first batch may begin before it
    next_offset: int  # after the last batch
    records: memoryview  # whole batches
    aborted: tuple[tuple[int, int], ...]  # producer id and first offset of aborted transactions
    high_watermark: int


def raise_loss(loss: DataLost) -> None:
    """What to do about lost data, unless told otherwise."""
    raise loss


def fetch(
    cluster: Cluster, ranges: Iterable[Range], *, on_loss: OnLoss = raise_loss
) -> Iterator[Fetched]:
    """Every batch of every range, in turns; no partition may be in two ranges."""
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
        self.is_bound = wanted.topic_id != ZERO_UUID  # to one topic, whoever has its name now
        self.topic_id = wanted.topic_id if self.is_bound else cluster.topic(wanted.topic).topic_id
        self.replica = -1  # to read from instead of the leader
        self.replica_until = 0.0
        self.not_before = 0.0  # after trouble
        self.size_max = cluster.settings.max_partition_fetch_bytes
        self._settings = cluster.settings
        self._retry: Retry | None = None  # since trouble began; whoever takes his time is in none

    @property
    def retry(self) -> Retry:
        if self._retry is None:
            self._retry = Retry(self._settings)
        return self._retry

    def is_well(self) -> None:
        """Something was read: the next trouble is a new one."""
        self._retry = None

    def node(self, cluster: Cluster, now: float) -> int:
        """Whom to ask."""
        if self.replica >= 0 and now < self.replica_until:
            return self.replica
        self.replica = -1
        return cluster.leader(self.partition).node_id


class _UnderWay(NamedTuple):
    connection: Connection
    node_id: int
    cursors: list[_Cursor]


class _Fetching:
    """One call of `fetch`."""

    def __init__(self, cluster: Cluster, ranges: Iterable[Range], on_loss: OnLoss) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._on_loss = on_loss
        self._under_way: deque[_UnderWay] = deque()
        self._connections: dict[int, Connection] = {}
        self._stale: set[str] = set()  # topics to ask about anew
        wanted = [each for each in ranges if each.size]
        assert len({each.topic_partition for each in wanted}) == len(wanted), wanted
        self._left = list(self._cursors(wanted))

    def run(self) -> Iterator[Fetched]:
        while self._left:
            self._send()
            if not self._under_way:
                self._wait()
                continue
            chunks = self._receive(self._under_way.popleft())
            self._drop_finished()
            if chunks:
                self._send()  # before the caller sets to work
                yield from chunks

    def end(self) -> None:
        """Give the connections back; nobody waits for what is under way."""
        for connection in self._connections.values():
            self._cluster.give_back(connection)

    def _cursors(self, wanted: list[Range]) -> Iterator[_Cursor]:
        names = {each.topic for each in wanted}
        gone: set[str] = set()
        try:
            self._cluster.know(names)
        except UnknownTopic:
            gone = names - set(self._cluster.topics())
        self._stale |= {each.topic for each in wanted if each.topic not in gone and not is_same(
            each.topic_id, self._cluster.topic(each.topic).topic_id)}
        for each in wanted:
            if each.topic in gone:
                self._on_loss(DataLost(
                    each.topic_partition, each.first, each.end, "the topic was deleted"))
            else:
                yield _Cursor(each, self._cluster)

    def _drop_finished(self) -> None:
        self._left = [cursor for cursor in self._left if cursor.next < cursor.end]

    # -- asking

    def _send(self) -> None:
        """To every broker that is not busy for us: everything that is to be read there."""
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
                self._put_off(cursor, refused(
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
                self._under_way.append(_UnderWay(connection, node_id, cursors))

    def _ask(self, connection: Connection, cursors: list[_Cursor]) -> None:
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

    def _connection(self, node_id: int) -> Connection:
        known = self._connections.get(node_id)
        if known is None or not known.is_open:
            known = self._connections[node_id] = self._cluster.lend(node_id)
        return known

    # -- answers

    def _receive(self, asked: _UnderWay) -> list[Fetched]:
        try:
            answer = asked.connection.receive()
        except ConnectionFailed as error:
            self._put_off_all(asked.cursors, error)
            return []
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            self._put_off_all(asked.cursors, refused(answer.error_code, "reading"))
            return []
        by_name = {cursor.partition: cursor for cursor in asked.cursors}
        names = {cursor.topic_id: cursor.partition.topic for cursor in asked.cursors}
        chunks, empty = [], []
        for topic in answer.responses:
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
        self._put_off_all(by_name.values(), refused(Code.UNKNOWN_SERVER_ERROR, "reading"))
        for cursor, part in empty:
            self._take_nothing(cursor, part, answer_is_full=bool(chunks))
        return chunks

    def _take(self, cursor: _Cursor, part: PartitionData) -> list[Fetched]:
        records = part.records
        assert records, "there is something to take"
        size, next_offset = whole_batches(records, cursor.end)
        if not size:
            self._take_no_batch(cursor, records)
            return []
        if next_offset <= cursor.next:
            raise MalformedBytes(f"{cursor.partition}: asked for offset {cursor.next}, "
                                 f"the broker sends batches up to {next_offset}")
        first, cursor.next = cursor.next, next_offset
        cursor.is_well()
        self._left.remove(cursor)
        self._left.append(cursor)  # those that got nothing come first the next time
        aborted = tuple((each.producer_id, each.first_offset)
                        for each in part.aborted_transactions or ())
        return [Fetched(
            cursor.range, first, next_offset, records[:size], aborted, part.high_watermark)]

    def _take_no_batch(self, cursor: _Cursor, records: memoryview) -> None:
        """Either the answer was cut within its first batch, or that lies after the range."""
        base, length = _START.unpack_from(records) if len(records) >= _START.size else (-1, 0)
        if base >= cursor.end:
            cursor.next = cursor.end  # what was there was compacted away
        else:
            cursor.size_max = min(max(2 * cursor.size_max, LENGTH_START + length), SIZE_MAX)
            self._put_off(cursor, refused(Code.CORRUPT_MESSAGE, f"reading {cursor.partition}"))

    def _take_nothing(
        self, cursor: _Cursor, part: PartitionData, *, answer_is_full: bool
    ) -> None:
        """Ask elsewhere or again for the rest of a range, unless the log has been cut before it."""
        replica = part.preferred_read_replica
        if replica >= 0 and replica != cursor.replica:
            cursor.replica = replica
            cursor.replica_until = time.monotonic() + self._settings.metadata_max_age_ms / 1000
        elif answer_is_full:  # of other partitions
            cursor.is_well()
        elif cursor.retry.is_over:
            stable = self._settings.read_committed
            end = part.last_stable_offset if stable else part.high_watermark
            self._lose(cursor, cursor.end, f"the log ends at {end}")
        else:
            self._put_off(cursor, AnswerTooLate(f"{cursor.partition}: nothing to read"))

    def _take_error(self, cursor: _Cursor, part: PartitionData) -> None:
        if part.error_code == Code.OFFSET_OUT_OF_RANGE and cursor.replica < 0:
            self._find_start(cursor)
            return
        at_replica, cursor.replica = cursor.replica >= 0, -1
        code = Code.REPLICA_NOT_AVAILABLE if at_replica else part.error_code  # the leader decides
        self._put_off(cursor, refused(code, f"reading {cursor.partition}"))

    def _find_start(self, cursor: _Cursor) -> None:
        """The offset is not there: go on where the log begins, if that is before the end."""
        start = self._cluster.earliest([cursor.partition])[cursor.partition]
        if start <= cursor.next:
            self._lose(cursor, cursor.end, "the log was cut before them, or its topic made anew")
        else:
            self._lose(cursor, min(start, cursor.end), f"the log begins at {start}")

    def _lose(self, cursor: _Cursor, end: int, why: str) -> None:
        loss = DataLost(cursor.partition, cursor.next, end, why)
        self._on_loss(loss)  # F3
        cursor.next = end

    # -- trouble

    def _put_off_all(self, cursors: Iterable[_Cursor], error: ClientError) -> None:
        for cursor in cursors:
            cursor.replica = -1
            self._put_off(cursor, error)

    def _put_off(self, cursor: _Cursor, error: ClientError) -> None:
        """Try again a little later (F4)."""
        if error.kind not in (Kind.RETRY, Kind.REFRESH) or cursor.retry.is_over:
            raise error
        cursor.not_before = time.monotonic() + cursor.retry.next_pause()
        self._stale.add(cursor.partition.topic)

    def _wait(self) -> None:
        """Everything is put off: wait for the first of it."""
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
                cursor.topic_id = topic_id  # what was known may be older than the range
            elif not is_same(cursor.topic_id, topic_id):
                self._on_loss(TopicRecreated(
                    cursor.partition, cursor.next, cursor.end,
                    recreated(cursor.topic_id, topic_id)))  # F5
                cursor.next = cursor.end
        self._drop_finished()


def is_same(one: UUID, other: UUID) -> bool:
    """May two ids be of one topic?  Of zeros: brokers before Kafka 2.8 tell none."""
    return one == other or ZERO_UUID in (one, other)


def recreated(was: UUID, now: UUID) -> str:
    """What has happened to a topic whose id is another one now."""
    return f"the topic was deleted and created anew (its id was {was}, and is {now})"


def whole_batches(records: memoryview, end: int) -> tuple[int, int]:
    """The size of the batches that are whole and begin before `end`, and the offset after them.

    An answer may end within a batch: brokers cut where their limit is.
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
