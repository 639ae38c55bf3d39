"""ListOffsets — API key 2, versions 1-11.

Behaviour
    * a timestamp finds the first record that is not older; offset -1 if there is none
    * -1 latest: the high watermark; -2 earliest: the log start; -3 the first record with the
      largest timestamp
    * of a topic with a remote tier, -4 is the first offset that this node has, -5 the last that the
      tier has, -6 the first that is to be copied; without a tier, -4 is the log start, and -5 and
      -6 are -1, as they are while nothing has been copied (but -6 is the log start, if this node
      has all records)
    * a timestamp is looked for in the remote tier first; that ends with REQUEST_TIMED_OUT after
      remote.list.offsets.request.timeout.ms, or the request's own timeout
    * responds per partition: an error of one partition does not fail the others; one that is named
      several times is INVALID_REQUEST
    * only the leader responds, and only with committed offsets, never below what any client has
      read or was given before: it waits for the other nodes, and if that takes too long the
      partition gets OFFSET_NOT_AVAILABLE (partitions/end_offset_barrier.py); the log start needs no
      wait
    * to replica id -2, a dirty reader, any node responds; its latest offset is the end of the log
    * a search by timestamp may have to decompress a batch; large batches are decompressed in a
      thread; a search that takes longer than request.max.wait.ms gets REQUEST_TIMED_OUT, and
      searches end when the client disconnects
    * internal batches are not found, whatever their timestamps: only records that a fetch returns

Versions
    each special timestamp is served from the version on that introduced it; in earlier versions it
    gets UNSUPPORTED_VERSION, as any other negative timestamp does
    v5  OFFSET_NOT_AVAILABLE; before, LEADER_NOT_AVAILABLE in its place
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.broker.partitions.end_offset_barrier import (
    LogEnds,
    check_committed,
    code_for,
    wait_until_committed,
)
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.fetching import DIRTY_READER, check_given_epoch
from quipu.broker.serving.routing import why_absent
from quipu.broker.serving.timestamp_searches import TimestampSearch, search
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import NO_OFFSET, PartitionLog
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

ANSWERED: Final = 0  # of a partition that was named several times
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_REMOTE: Final = -5
EARLIEST_NOT_COPIED: Final = -6

_VERSION_MIN: Final = {
    LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_REMOTE: 9,
    EARLIEST_NOT_COPIED: 11,
}
_STARTS: Final = frozenset({EARLIEST, EARLIEST_LOCAL, LATEST_REMOTE, EARLIEST_NOT_COPIED})


async def handle(
    broker: Broker, request: ListOffsetsRequest, context: Context
) -> ListOffsetsResponse:
    dirty = request.replica_id == DIRTY_READER
    log_ends = await wait_until_committed(
        partition for partition in _end_partitions(broker, request)
        if partition.is_diskless or not dirty)
    lookup = _Lookup(context.api_version, dirty, log_ends, [])
    named = Counter((topic.name, wanted.partition_index)
                    for topic in request.topics for wanted in topic.partitions)
    found: list[tuple[str, list[ListOffsetsPartitionResponse]]] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            await context.pause()
            count = named[topic.name, wanted.partition_index]
            if count == 1:
                results.append(_find(broker, topic.name, wanted, lookup))
            elif count > 1:
                named[topic.name, wanted.partition_index] = ANSWERED
                results.append(ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index, error_code=Code.INVALID_REQUEST))
        if results:
            found.append((topic.name, results))
    await search(broker, lookup.searches, context, timeout_ms=request.timeout)
    response = ListOffsetsResponse(topics=context.array(ListOffsetsTopicResponse))
    for name, results in found:
        partitions = context.array(ListOffsetsPartitionResponse)
        for result in results:
            await context.pause()
            partitions.append(result)
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
    return response


def _end_partitions(broker: Broker, request: ListOffsetsRequest) -> Iterator[PartitionLog]:
    """The partitions led here for which more than a start offset is requested, or any of diskless
    ones, whose start is not known here either.

    Keeps broker.partitions.E2.
    """
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = broker.partitions.find(topic.name, wanted.partition_index)
            if partition is not None and partition.is_active_leader and (
                    partition.is_diskless or wanted.timestamp not in _STARTS):
                yield partition


class _Lookup(NamedTuple):
    """What the lookups of one request share."""

    version: int
    dirty: bool
    log_ends: LogEnds
    searches: list[TimestampSearch]


def _find(
    broker: Broker, topic: str, wanted: ListOffsetsPartition, lookup: _Lookup
) -> ListOffsetsPartitionResponse:
    result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    version = lookup.version
    if wanted.timestamp < 0 and version < _VERSION_MIN.get(wanted.timestamp, version + 1):
        result.error_code = Code.UNSUPPORTED_VERSION
        return result
    partition = broker.partitions.find(topic, wanted.partition_index)
    if partition is None:
        result.error_code = why_absent(broker, topic, wanted.partition_index)
        return result
    result.error_code = check_given_epoch(wanted.current_leader_epoch, partition.leader_epoch)
    if result.error_code:
        return result
    try:
        _fill(result, partition, wanted.timestamp, lookup)
    except QuipuError as error:
        result.error_code = code_for(error, version)
    return result


def _fill(
    result: ListOffsetsPartitionResponse, partition: PartitionLog, timestamp: int,
    lookup: _Lookup,
) -> None:
    dirty = lookup.dirty
    if not dirty:
        partition.check_leader()
        if timestamp not in _STARTS or partition.is_diskless:
            check_committed(partition, lookup.log_ends)
    elif partition.failure is not None:
        raise partition.failure
    end = partition.log_end_offset if dirty else partition.high_watermark
    match timestamp:
        case -1:  # LATEST
            result.offset = end
        case -2:  # EARLIEST
            result.offset = partition.log_start_offset
        case -4:  # EARLIEST_LOCAL
            result.offset = partition.local_start_offset
        case -5:  # LATEST_REMOTE
            result.offset = partition.highest_tiered_offset
        case -6:  # EARLIEST_NOT_COPIED
            result.offset = _earliest_not_copied(partition)
        case _:  # MAX_TIMESTAMP, or a time
            lookup.searches.append(TimestampSearch(result, partition, timestamp, end))
            return
    if result.offset >= 0:
        result.leader_epoch = partition.leader_epoch
        if timestamp in _STARTS and partition.tier.is_enabled and result.offset < end:
            result.leader_epoch = partition.tier.epoch_for_offset(Offset(result.offset))


def _earliest_not_copied(partition: PartitionLog) -> Offset:
    """The first offset that is still to be copied to the remote tier; -1 if it is not known."""
    if not partition.tier.is_enabled:
        return NO_OFFSET
    start, tiered = partition.log_start_offset, partition.highest_tiered_offset
    if tiered >= 0:
        return Offset(max(tiered + 1, start))
    return start if partition.local_start_offset == start else NO_OFFSET
