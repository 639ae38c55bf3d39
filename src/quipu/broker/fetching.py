"""Reading for a fetch: one pass over what a client fetches, within its limits.

The first batch found is taken whatever its size, so that a client with small limits gets on; after
it, limits hold.  What cannot be read is an error of its partition alone.

Which node reads what
    * any node that serves the partition gives what is committed
    * the head sends consumers on to the tail, if they understand that (KIP-392); who comes back
      soon, on the same connection, cannot or will not go there, and is served by the head
    * who reads anywhere but at the tail may have been at the tail before, which knows more: until
      all is committed that this node held when the reader came, it is given what is committed but
      not told up to where (-1), and at the end it waits, or gets OFFSET_NOT_AVAILABLE; so neither
      the high watermark nor the end goes back, and a chain that stands still can be read
    * only a node whose lease lasts says that there is nothing newer, or that an offset which lies
      beyond what it knows is out of range
    * a dirty reader (replica id -2) gets all that the log has, wherever it asks

Not here: waiting and answering (handlers/k01_fetch.py), what is fetched (fetch_sessions.py).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from quipu.broker.context import Broker
from quipu.broker.fetch_sessions import (
    FetchClient,
    FetchSession,
    FetchSessions,
    FetchTarget,
    Referral,
)
from quipu.broker.partition import Partition
from quipu.broker.routing import is_up, why_absent
from quipu.model.errors import Code, OffsetOutOfRange, QuipuError
from quipu.model.ids import NO_NODE, Epoch, Offset
from quipu.wire.fetch_codec import FetchedPart

DIRTY_READER: Final = -2  # replica id of one who wants to see what is not committed yet
VERSION_PREFERRED: Final = 11  # from here on a consumer can be sent to another node
REFER_SECONDS: Final = 30.0  # that who was sent to a node is not sent there again
VERSION_LEADERS: Final = 12  # answers name the leader from here on
VERSION_IDS: Final = 13  # topics have ids instead of names from here on
READ_COMMITTED: Final = 1  # isolation level
MOVED: Final = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)
NO_OFFSET: Final = Offset(-1)

Answered = tuple[FetchTarget, FetchedPart]
# Most bytes, version, dirty, who asks; plain, since made for every request.
Reader = tuple[int, int, bool, FetchClient]


class Found(NamedTuple):
    """What one pass found."""

    parts: list[Answered]
    size: int  # bytes of all records
    failed: bool  # something the client should hear of now


def read(
    broker: Broker, session: FetchSession, reader: Reader,
    targets: Iterable[FetchTarget] | None = None, size: int = 0,
) -> Found:
    """Read every target of the session once; or `targets`, after others that gave `size` bytes."""
    size_max, _, dirty, _ = reader
    size_max = min(size_max, broker.settings.fetch_max_bytes)
    find = broker.partitions.find_for_wire
    parts: list[Answered] = []
    failed = False
    incremental = session.incremental
    for target in session.targets.values() if targets is None else targets:
        partition = find(target.topic, target.partition)
        if partition is None:
            part = FetchedPart(
                target.partition, why_absent(broker, target.topic, target.partition))
        elif incremental and not dirty and _is_quiet(target, partition):
            continue  # most of many partitions, most of the time
        elif not partition.is_alone and (
                moved := _elsewhere(broker, target, partition, reader, size)):
            part = moved
            failed = failed or moved.preferred_read_replica >= 0
        else:
            part = _read_one(target, partition, size_max - size, dirty, min_one=size == 0)
        parts.append((target, part))
        size += part.size
        if part.diverging_end_offset >= 0 or (
                part.error_code and part.error_code != Code.OFFSET_NOT_AVAILABLE):
            failed = True  # the other is worth a wait
    return Found(parts, size, failed)


def news(session: FetchSession, parts: list[Answered]) -> list[Answered]:
    """Those of `parts` that the client is to be told; the session remembers that it was."""
    told_now = []
    for target, part in parts:
        told = (part.high_watermark, part.log_start_offset)
        if part.size:
            session.served((target.topic, target.partition))
        elif (
            session.incremental
            and part.error_code == 0
            and target.told == told
            and part.diverging_end_offset < 0
            and part.preferred_read_replica < 0
        ):
            continue
        target.told = told if part.error_code == 0 else None
        told_now.append((target, part))
    return told_now


def by_topic(parts: Iterable[Answered]) -> list[tuple[str | bytes, list[FetchedPart]]]:
    """Group answers by topic, in the order in which topics come first."""
    topics: dict[str | bytes, list[FetchedPart]] = {}
    for target, part in parts:
        topics.setdefault(target.topic, []).append(part)
    return list(topics.items())


def _is_quiet(target: FetchTarget, partition: Partition) -> bool:
    """Has the client read to the end, and been told all there is to tell?"""
    high_watermark = partition.high_watermark
    return (
        target.offset == high_watermark
        and (partition.is_alone or (
            partition.is_sure and not partition.is_leading and partition.is_current))
        and target.told == (high_watermark, partition.log.log_start_offset)
        and partition.failed is None
        and check_epoch(target.leader_epoch, partition.leader_epoch) == 0
    )


def _elsewhere(
    broker: Broker, target: FetchTarget, partition: Partition, reader: Reader, size: int
) -> FetchedPart | None:
    """Where to read instead of here, or what can be read here before the end is sure."""
    size_max, version, dirty, client = reader
    error = partition.readable(dirty=dirty)
    if error is not None:
        return FetchedPart(target.partition, error.code)
    if dirty or version < VERSION_PREFERRED:
        return None  # who cannot be sent to a tail has been told nothing by one
    assert partition.replica_set is not None
    tail = partition.replica_set.tail
    if tail == broker.node_id or check_epoch(target.leader_epoch, partition.leader_epoch):
        return None  # of another epoch it is told first
    if partition.is_leading and is_up(broker, tail) and broker.cluster.is_settled(tail) and _refer(
            broker.fetch_sessions, client, target, partition, broker.clock.monotonic()):
        is_end = partition.committed_log >= partition.log.log_end
        end = partition.high_watermark if is_end else NO_OFFSET
        return FetchedPart(target.partition, 0, end, end, partition.log.log_start_offset,
                           preferred_read_replica=tail)
    committed = partition.high_watermark
    was_given_more = committed < target.offset <= partition.log.end_offset
    end = _end_when_it_came(broker.fetch_sessions, client, target, partition)
    if committed >= end and not was_given_more:
        return None
    if target.offset >= committed:
        return FetchedPart(target.partition, Code.OFFSET_NOT_AVAILABLE)
    size_max = min(size_max, broker.settings.fetch_max_bytes)
    part = _read_one(target, partition, size_max - size, dirty, min_one=size == 0)
    return part._replace(high_watermark=NO_OFFSET, last_stable_offset=NO_OFFSET)


def _refer(
    sessions: FetchSessions, client: FetchClient, target: FetchTarget, partition: Partition,
    now: float,
) -> bool:
    """Should a reader be sent to the tail?  Not if it was a moment ago, and is here all the same:
    clients that are given no rack may ignore it, or be unable to reach that node.
    """
    assert partition.replica_set is not None
    tail = partition.replica_set.tail
    before = client.referrals.get(target.key)
    if before is not None and before.node_id == tail and now - before.at < REFER_SECONDS:
        return False
    sessions.refer(
        client, target.key, Referral(tail, now, partition.leader_epoch, NO_OFFSET))
    return True


def _end_when_it_came(
    sessions: FetchSessions, client: FetchClient, target: FetchTarget, partition: Partition
) -> Offset:
    """Where the log ended when this reader came, or came back from the tail."""
    known = client.referrals.get(target.key)
    if known is None or known.end < 0 or known.epoch != partition.leader_epoch:
        node_id, at = (NO_NODE, 0.0) if known is None else (known.node_id, known.at)
        known = Referral(node_id, at, partition.leader_epoch, partition.log.end_offset)
        sessions.refer(client, target.key, known)
    return known.end


def _read_one(
    target: FetchTarget,
    partition: Partition,
    size_left: int,
    dirty: bool,  # noqa: FBT001 called for every partition of every request
    *,
    min_one: bool,
) -> FetchedPart:
    log = partition.log
    index, offset = target.partition, target.offset
    if log.failure is not None:
        return FetchedPart(index, log.failure.code)
    if target.leader_epoch >= 0 and (
            code := check_epoch(target.leader_epoch, partition.leader_epoch)):
        return FetchedPart(index, code)
    if dirty:
        high_watermark = log.end_offset
    elif partition.is_alone:
        high_watermark = log.high_watermark
    else:
        high_watermark = partition.commits.committed
    if target.last_fetched_epoch >= 0:
        diverging = _diverging(target, partition)
        if diverging is not None:
            return FetchedPart(
                index, 0, high_watermark, high_watermark, log.log_start_offset,
                diverging_epoch=diverging[0], diverging_end_offset=diverging[1])
    if offset == high_watermark:  # at the end, as consumers are who wait for more
        if not (partition.is_alone or dirty or partition.is_current):
            return FetchedPart(index, Code.NOT_LEADER_OR_FOLLOWER)
        return FetchedPart(index, 0, high_watermark, high_watermark, log.log_start_offset)
    try:
        records = log.read(
            Offset(offset), max(0, min(size_left, target.size_max)), end=high_watermark,
            min_one=min_one)
    except OffsetOutOfRange:
        if offset > high_watermark and not (partition.is_alone or dirty or partition.is_current):
            return FetchedPart(index, Code.NOT_LEADER_OR_FOLLOWER)  # others may have more
        return FetchedPart(
            index, Code.OFFSET_OUT_OF_RANGE, high_watermark, high_watermark, log.log_start_offset)
    except QuipuError as error:
        return FetchedPart(index, error.code)
    size = len(records[0]) if len(records) == 1 else sum(map(len, records))
    return FetchedPart(
        index, 0, high_watermark, high_watermark, log.log_start_offset, records, size)


def check_epoch(asked: int, current: Epoch) -> int:
    """A client that knows another leader than there is must ask for metadata first."""
    if asked < 0 or asked == current:
        return 0
    return Code.FENCED_LEADER_EPOCH if asked < current else Code.UNKNOWN_LEADER_EPOCH


def _diverging(target: FetchTarget, partition: Partition) -> tuple[int, int] | None:
    """Where the client's history and this log part ways, if they do (KIP-595)."""
    epoch, end = partition.log.epoch_end(Epoch(target.last_fetched_epoch))
    if epoch == target.last_fetched_epoch and end >= target.offset:
        return None
    return epoch, end
