"""ListOffsets — API key 2, versions 1-11.

Behaviour
    * a timestamp finds the first record that is not older; nothing found is offset -1
    * -1 latest: the high watermark; -2 earliest: the log start; -3 the first record with the
      largest timestamp; -4 earliest kept here: the log start; -5 and -6 ask about copies in
      remote storage, of which there are none: offset -1
    * answers per partition: one bad partition does not fail the others
    * only the node that leads answers, and only for what is committed; never less than anyone was
      given or told before: it waits for the other nodes, and if that takes too long the answer is
      OFFSET_NOT_AVAILABLE (settling.py); the log start is told at once
    * to replica id -2, a dirty reader, any node answers, and its latest is the end of the log
    * a look for a time may have to decompress a batch: large ones are, in a thread; what is not
      found within request.max.wait.ms is REQUEST_TIMED_OUT, and nothing is looked for that nobody
      waits for any more
    * internal batches are not found, whatever their timestamps: offsets and times are those of
      records that a fetch returns

Versions
    each special timestamp is served from the version on that brought it; before, and for others
    below zero, the answer is UNSUPPORTED_VERSION
    v5  OFFSET_NOT_AVAILABLE; before, LEADER_NOT_AVAILABLE in its place
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.broker.context import Broker, Context
from quipu.broker.fetching import DIRTY_READER, check_epoch
from quipu.broker.partition import Partition
from quipu.broker.record_checks import find_record
from quipu.broker.routing import why_absent
from quipu.broker.settling import Marks, check_settled, code_for, settle
from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.model.ids import Offset, TimestampMs
from quipu.storage.log import TimestampAndOffset
from quipu.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

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
    marks = {} if dirty else await settle(_asked_for_ends(broker, request))
    asker = _Asker(context.api_version, dirty, marks, [])
    found = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            await context.pause()
            answers.append(_find(broker, topic.name, wanted, asker))
        found.append((topic.name, answers))
    await _look_up(broker, asker.searches, context)
    response = ListOffsetsResponse(topics=context.array(ListOffsetsTopicResponse))
    for name, answers in found:
        partitions = context.array(ListOffsetsPartitionResponse)
        for answer in answers:
            await context.pause()
            partitions.append(answer)
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
    return response


class _Search(NamedTuple):
    """An answer that waits for a record to be found by its time."""

    answer: ListOffsetsPartitionResponse
    partition: Partition
    timestamp: int
    end: Offset  # clients see no record from here on


def _asked_for_ends(broker: Broker, request: ListOffsetsRequest) -> Iterator[Partition]:
    """The partitions led here of which more is asked than where they start (E2)."""
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = broker.partitions.find(topic.name, wanted.partition_index)
            if partition is not None and wanted.timestamp not in _STARTS and partition.may_lead:
                yield partition


class _Asker(NamedTuple):
    version: int
    dirty: bool
    marks: Marks
    searches: list[_Search]


async def _look_up(broker: Broker, searches: list[_Search], context: Context) -> None:
    """Fill in what is found by time, one search after the other, each but once."""
    known: dict[tuple[str, int], TimestampAndOffset | None] = {}
    monotonic = broker.clock.monotonic
    deadline = monotonic() + broker.settings.request_max_wait_ms / 1000
    for answer, partition, timestamp, end in searches:
        if context.answer is not None:
            await context.answer.pause()  # raises if the client is gone
        log = partition.log
        try:
            if monotonic() > deadline:
                raise RequestError("searches by time take too long: ask for fewer at a time",
                                   code=Code.REQUEST_TIMED_OUT, kind=Kind.RETRY)
            if (log.name, timestamp) not in known:
                known[log.name, timestamp] = await find_record(
                    broker, log.search_newest() if timestamp == MAX_TIMESTAMP
                    else log.search_timestamp(TimestampMs(timestamp)),
                    partition.rules.decompressed_size_max)
            _fill_found(answer, end, known[log.name, timestamp])
        except QuipuError as error:
            answer.error_code = error.code


def _find(
    broker: Broker, topic: str, wanted: ListOffsetsPartition, asker: _Asker
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    partition = broker.partitions.find(topic, wanted.partition_index)
    if partition is None:
        answer.error_code = why_absent(broker, topic, wanted.partition_index)
        return answer
    version = asker.version
    if wanted.timestamp < 0 and version < _VERSION_MIN.get(wanted.timestamp, version + 1):
        answer.error_code = Code.UNSUPPORTED_VERSION
        return answer
    answer.error_code = check_epoch(wanted.current_leader_epoch, partition.leader_epoch)
    if answer.error_code:
        return answer
    try:
        _fill(answer, partition, wanted.timestamp, asker)
    except QuipuError as error:
        answer.error_code = code_for(error, version)
    return answer


def _fill(
    answer: ListOffsetsPartitionResponse, partition: Partition, timestamp: int, asker: _Asker
) -> None:
    dirty = asker.dirty
    if not dirty:
        partition.must_lead()
        if timestamp not in _STARTS:
            check_settled(partition, asker.marks)
    elif partition.failed is not None:
        raise partition.failed
    log = partition.log
    end = log.end_offset if dirty else partition.high_watermark
    match timestamp:
        case -1:  # LATEST
            answer.offset, answer.leader_epoch = end, partition.leader_epoch
        case -2 | -4:  # EARLIEST, EARLIEST_LOCAL
            answer.offset, answer.leader_epoch = log.log_start_offset, partition.leader_epoch
        case -5 | -6:  # LATEST_REMOTE, EARLIEST_NOT_COPIED
            pass
        case _:  # MAX_TIMESTAMP, or a time
            asker.searches.append(_Search(answer, partition, timestamp, end))


def _fill_found(
    answer: ListOffsetsPartitionResponse, end: Offset, found: TimestampAndOffset | None
) -> None:
    """Take over what was found, if a client can see it already."""
    if found is not None and found.offset < end:
        answer.timestamp, answer.offset, answer.leader_epoch = found
