"""Reads the partitions of a fetch once, within the client's limits.

The first batch found is returned whatever its size, so that a client with small limits makes
progress; for later batches the limits hold.  An error of one partition does not fail the others.

Which node gives which records
    * any serving node of the partition gives committed records
    * the head sends consumers to the tail, if their version supports that (KIP-392); a consumer
      that comes back soon, on the same connection, cannot or does not read there, and is served by
      the head
    * a consumer that reads at another node than the tail may have read at the tail before, which
      knows of more committed records.  Until everything is committed that this node held when the
      consumer came, it gets committed records without the high watermark (-1); at the end of the
      committed records it waits, or gets OFFSET_NOT_AVAILABLE.  So neither the high watermark nor
      the end offset that a client sees goes back, and a chain without progress can be read
    * only a node that holds its lease responds that there are no newer records, or that an offset
      above its own end is out of range
    * any node gives the records of a diskless partition; one that is not in the consumer's rack
      sends it to a live replica there, if the consumer says its rack and there is one; not again
      soon, on the same connection (broker.serving.Z4)
    * a dirty reader (replica id -2) gets everything that the log of any node has

A partition whose bytes are being fetched from a remote tier is empty in a pass.  The fetch waits
for them as for new records, at most for the client's max wait and for remote.fetch.max.wait.ms;
then a second pass reads all partitions again, and those whose bytes have not arrived stay empty.

Not here: waiting and responding (pending_fetch.py, large_fetch.py), which partitions a client
fetches (fetch_sessions.py).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker
from quipu.broker.serving.fetch_sessions import (
    FetchClient,
    FetchSession,
    FetchSessions,
    FetchTarget,
    Referral,
)
from quipu.broker.serving.routing import is_up, why_absent
from quipu.broker.serving.zone_views import Nodes, nearer_replica
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NO_NODE, Epoch, NodeId, Offset
from quipu.model.partition_log import PartitionLog, PendingRead, ReadResult
from quipu.wire.fetch_codec import FetchedPart

DIRTY_READER: Final = -2  # replica id of a client that also reads uncommitted records
VERSION_PREFERRED: Final = 11  # from this version on, consumers can be sent to another node
REFER_SECONDS: Final = 30.0  # for which a consumer is not sent to the same node again
VERSION_LEADERS: Final = 12  # from this version on, responses name the leader
VERSION_IDS: Final = 13  # from this version on, topics have ids instead of names
READ_COMMITTED: Final = 1  # isolation level
MOVED: Final = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)
NO_OFFSET: Final = Offset(-1)

FetchedTarget = tuple[FetchTarget, FetchedPart]
# Max bytes, version, whether it reads dirty, client, nodes in its rack if this one is not
# (zone_views.nodes_nearer); a plain tuple, as every request makes one.
Reader = tuple[int, int, bool, FetchClient, Nodes]
Limit = tuple[int, bool]  # bytes that are left, and whether the first batch may exceed them


class FetchPass(NamedTuple):
    """The result of one pass over the partitions of a fetch."""

    parts: list[FetchedTarget]
    size: int  # bytes of all records
    failed: bool  # there is an error, or a redirection, that the client should get at once
    coming: list[PendingRead]  # reads whose bytes have not arrived; empty in `parts`
    reserved: int = 0  # bytes of the client's limit that are reserved for `coming`

    def cancel(self) -> None:
        """Cancel the reads whose bytes have not arrived."""
        for pending in self.coming:
            pending.cancel()


def read(
    broker: Broker, session: FetchSession, reader: Reader,
    targets: Iterable[FetchTarget] | None = None, *, before: FetchPass | None = None,
    is_last: bool = False,
) -> FetchPass:
    """Read every target of the session once; or only `targets`, after a pass that gave `before`.

    Unless this pass `is_last`, bytes that have not arrived count against the client's limits.
    """
    size_max, _, dirty, _, near = reader
    size_max = min(size_max, broker.settings.fetch_max_bytes)
    find = broker.partitions.find_for_wire
    parts: list[FetchedTarget] = []
    coming: list[PendingRead] = []
    size = reserved = 0
    if before is not None:
        size, reserved = before.size, before.reserved
    failed = False
    incremental = session.incremental
    for target in session.targets.values() if targets is None else targets:
        partition = find(target.topic, target.partition)
        if partition is None:
            part = FetchedPart(
                target.partition, why_absent(broker, target.topic, target.partition))
        elif incremental and not dirty and _is_quiet(target, partition):
            continue  # nothing new, as for most partitions most of the time
        else:
            limit = size_max - size - reserved, size + reserved == 0
            coming_count = len(coming)
            if near and partition.is_diskless and (
                    referred := _refer_nearer(broker, target, partition, reader)) is not None:
                part, failed = referred, True
            elif partition.is_sole_replica:
                part = _read_one(target, partition, limit, dirty, coming)
            else:
                part = _read_replica(
                    broker, target, partition, reader, limit, coming=coming)
                failed = failed or part.preferred_read_replica >= 0
            if not is_last and len(coming) > coming_count:
                reserved += max(1, min(limit[0], target.size_max))
        parts.append((target, part))
        size += part.size
        if part.diverging_end_offset >= 0 or (
                part.error_code and part.error_code != Code.OFFSET_NOT_AVAILABLE):
            failed = True  # OFFSET_NOT_AVAILABLE may pass during the wait
    return FetchPass(parts, size, failed, coming, reserved)


def wait_ms(broker: Broker, client_max_ms: int, coming: Sequence[PendingRead]) -> int:
    """Milliseconds for which a fetch waits at most, if it waits for the bytes of `coming`."""
    longest = min(client_max_ms, broker.settings.fetch_max_wait_ms)
    return min(longest, broker.cluster.settings.remote_fetch_max_wait_ms) if coming else longest


def news(session: FetchSession, parts: list[FetchedTarget]) -> list[FetchedTarget]:
    """The parts that must be in the response; the session remembers their bounds."""
    reported = []
    for target, part in parts:
        bounds = (part.high_watermark, part.log_start_offset)
        if part.size:
            session.served((target.topic, target.partition))
        elif (
            session.incremental
            and part.error_code == 0
            and target.reported == bounds
            and part.diverging_end_offset < 0
            and part.preferred_read_replica < 0
        ):
            continue
        target.reported = bounds if part.error_code == 0 else None
        reported.append((target, part))
    return reported


def by_topic(parts: Iterable[FetchedTarget]) -> list[tuple[str | bytes, list[FetchedPart]]]:
    """Group parts by topic, in the order of the topics' first parts."""
    topics: dict[str | bytes, list[FetchedPart]] = {}
    for target, part in parts:
        topics.setdefault(target.topic, []).append(part)
    return list(topics.items())


def _is_quiet(target: FetchTarget, partition: PartitionLog) -> bool:
    """Whether the client is at the end, and the bounds in its last response still hold."""
    high_watermark = partition.high_watermark
    return (
        target.offset == high_watermark
        and (partition.is_sole_replica or (
            partition.is_readable and not partition.is_leader and partition.has_lease))
        and target.reported == (high_watermark, partition.log_start_offset)
        and partition.failure is None
        and check_epoch(target.leader_epoch, partition.leader_epoch) == 0
    )


def _read_replica(
    broker: Broker, target: FetchTarget, partition: PartitionLog, reader: Reader, limit: Limit,
    *, coming: list[PendingRead],
) -> FetchedPart:
    """Read a partition that other nodes have too, or send the client to its tail."""
    _, version, dirty, client, _ = reader
    error = partition.why_unreadable(dirty=dirty)
    if error is not None:
        return FetchedPart(target.partition, code_of(error))
    if dirty or version < VERSION_PREFERRED:  # it cannot have read at the tail
        return _read_one(target, partition, limit, dirty, coming)
    tail = partition.preferred_read_replica
    if tail == broker.node_id or check_epoch(target.leader_epoch, partition.leader_epoch):
        return _read_one(target, partition, limit, dirty, coming)  # a wrong epoch is an error
    if partition.is_leader and is_up(broker, tail) and broker.cluster.is_settled(tail) and (
            not _was_referred(broker, client, target, tail)):
        _refer(broker, client, target, tail, partition.leader_epoch)
        is_end = partition.committed_end >= partition.log_end
        end = partition.high_watermark if is_end else NO_OFFSET
        return FetchedPart(target.partition, 0, end, end, partition.log_start_offset,
                           preferred_read_replica=tail)
    committed = partition.high_watermark
    was_given_more = committed < target.offset <= partition.log_end_offset
    end = _end_when_it_came(broker.fetch_sessions, client, target, partition)
    if committed >= end and not was_given_more:
        return _read_one(target, partition, limit, dirty, coming)
    if target.offset >= committed:
        return FetchedPart(target.partition, Code.OFFSET_NOT_AVAILABLE)
    part = _read_one(target, partition, limit, dirty, coming)
    return part._replace(high_watermark=NO_OFFSET, last_stable_offset=NO_OFFSET)


def _refer_nearer(
    broker: Broker, target: FetchTarget, partition: PartitionLog, reader: Reader
) -> FetchedPart | None:
    """Send a consumer to the replica of a diskless partition in its rack, unless it was already.

    A client that comes back is served: the replica may have refused its offset, or be unreachable.
    If it cannot be remembered that a client was sent, it is not sent (broker.serving.Z4).
    """
    _, _, dirty, client, near = reader
    nearer = nearer_replica(broker, target.topic, target.partition, near)
    if nearer == NO_NODE or dirty or check_epoch(target.leader_epoch, partition.leader_epoch) or (
            _was_referred(broker, client, target, nearer)) or not (
            _refer(broker, client, target, nearer, partition.leader_epoch)):
        return None
    end = partition.high_watermark
    return FetchedPart(target.partition, 0, end, end, partition.log_start_offset,
                       preferred_read_replica=nearer)


def _was_referred(
    broker: Broker, client: FetchClient, target: FetchTarget, node_id: NodeId
) -> bool:
    """Whether the client was sent to a node for a partition a moment ago.

    Such a client ignores the redirection, as clients without a rack may, or cannot reach the node.
    """
    before = client.referrals.get(target.key)
    return (before is not None and before.node_id == node_id
            and broker.clock.monotonic() - before.at < REFER_SECONDS)


def _refer(
    broker: Broker, client: FetchClient, target: FetchTarget, node_id: NodeId, epoch: Epoch
) -> bool:
    """Remember that a client is sent to a node; False if there is no room for that."""
    return broker.fetch_sessions.refer(client, target.key, Referral(
        node_id, broker.clock.monotonic(), epoch, NO_OFFSET))


def _end_when_it_came(
    sessions: FetchSessions, client: FetchClient, target: FetchTarget,
    partition: PartitionLog,
) -> Offset:
    """Where the log ended when this client first read here, or came back from the tail."""
    known = client.referrals.get(target.key)
    if known is None or known.end < 0 or known.epoch != partition.leader_epoch:
        node_id, at = (NO_NODE, 0.0) if known is None else (known.node_id, known.at)
        known = Referral(node_id, at, partition.leader_epoch, partition.log_end_offset)
        sessions.refer(client, target.key, known)
    return known.end


def _read_one(
    target: FetchTarget,
    partition: PartitionLog,
    limit: Limit,
    dirty: bool,  # noqa: FBT001 called for every partition of every request
    coming: list[PendingRead],
) -> FetchedPart:
    """Read one partition; a read whose bytes have not arrived is empty, and added to `coming`."""
    epoch, last_epoch = target.leader_epoch, target.last_fetched_epoch
    if (last_epoch >= 0 or epoch not in (-1, partition.leader_epoch)) and (
            partition.failure is None):
        if code := check_epoch(epoch, partition.leader_epoch):
            return FetchedPart(target.partition, code)
        if last_epoch >= 0:
            diverging = _diverging(target, partition, dirty=dirty)
            if diverging is not None:
                return diverging
    result = partition.read(
        Offset(target.offset), max(0, min(limit[0], target.size_max)), min_one=limit[1],
        dirty=dirty)
    if isinstance(result, ReadResult):
        if result.error_code:  # as in Kafka, without bounds
            return FetchedPart(target.partition, result.error_code)
        return FetchedPart(target.partition, *result)
    coming.append(result)
    end = partition.log_end_offset if dirty else partition.high_watermark
    return FetchedPart(target.partition, 0, end, end, partition.log_start_offset)


def _diverging(
    target: FetchTarget, partition: PartitionLog, *, dirty: bool
) -> FetchedPart | None:
    """Where the client's log and this one differ (KIP-595), or why that is not known; None if they
    do not differ before the offset.
    """
    last_epoch = Epoch(target.last_fetched_epoch)
    end = partition.log_end_offset if dirty else partition.high_watermark
    try:
        known, known_end = partition.epoch_end(last_epoch)
    except QuipuError as error:
        return FetchedPart(target.partition, code_of(error))
    if last_epoch == partition.leader_epoch:  # it may have no record yet
        known, known_end = last_epoch, end
    if last_epoch > partition.leader_epoch or target.offset < partition.log_start_offset:
        return FetchedPart(target.partition, Code.OFFSET_OUT_OF_RANGE)
    if known == last_epoch and (known_end >= target.offset or partition.is_diskless):
        return None  # the end of a diskless epoch may be old
    return FetchedPart(
        target.partition, 0, end, end, partition.log_start_offset,
        diverging_epoch=known, diverging_end_offset=known_end)


def check_epoch(requested: int, current: Epoch) -> int:
    """The error code for a request with another leader epoch than the current one; 0 if equal."""
    if requested < 0 or requested == current:
        return 0
    return Code.FENCED_LEADER_EPOCH if requested < current else Code.UNKNOWN_LEADER_EPOCH


def check_given_epoch(requested: int, current: Epoch) -> int:
    """As `check_epoch`, of a request in which only -1 means that no epoch is given."""
    if requested in (-1, current):
        return 0
    return Code.FENCED_LEADER_EPOCH if requested < current else Code.UNKNOWN_LEADER_EPOCH
