"""DeleteRecords — API key 21, versions 0-2.

Behaviour
    * moves the log start offset forward; the bytes are removed later, with their segment
    * offset -1 means the high watermark, which is not below anything that a client has read before
      (partitions/end_offset_barrier.py); an offset below the log start changes nothing
    * only the leader does it; it responds with the new log start offset, once that is committed
    * responds per partition: an error of one partition does not fail the others; if a partition is
      named several times, the last offset counts
    * records of internal topics cannot be deleted: INVALID_TOPIC_EXCEPTION; nor those of topics
      whose cleanup.policy is compact alone: POLICY_VIOLATION

Versions
    v2  flexible encoding
"""

import asyncio
from typing import Final, NamedTuple

from quipu.broker.error_codes import code_of
from quipu.broker.partitions.end_offset_barrier import (
    LogEnds,
    check_committed,
    wait_until_committed,
)
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import why_absent
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import Offset, TopicPartition
from quipu.model.topics import is_internal
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_WATERMARK: Final = -1

_Moved = asyncio.Future[Offset | QuipuError]


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse:
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics for partition in topic.partitions}
    timeout_ms = min(request.timeout, broker.settings.request_max_wait_ms)
    log_ends = await wait_until_committed(
        partition for topic, index in wanted
        if (partition := broker.partitions.find(topic, index)) is not None
        and partition.is_active_leader)
    deletions = []
    for (topic, index), before in wanted.items():
        await context.pause()
        name = TopicPartition(topic, index)
        deletions.append(_begin(broker, name, Offset(before), timeout_ms, log_ends))
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for deletion in deletions:
        await context.pause()
        topic = deletion.topic_partition.topic
        result = topics.setdefault(topic, DeleteRecordsTopicResult(name=topic))
        result.partitions.append(await _finish(deletion))
    return DeleteRecordsResponse(topics=list(topics.values()))


class _Deletion(NamedTuple):
    """A log whose start is being moved, unless there is an `error`."""

    topic_partition: TopicPartition
    error: Code = Code.NONE
    moved: "_Moved | None" = None  # where the log starts, once that is committed


def _begin(
    broker: Broker, name: TopicPartition, before: Offset, timeout_ms: int, log_ends: LogEnds
) -> _Deletion:
    """Move the start of one log; a request moves all logs before it waits for the first."""
    if is_internal(name.topic):
        return _Deletion(name, Code.INVALID_TOPIC_EXCEPTION)
    partition = broker.partitions.find(*name)
    topic = broker.cluster.state.topics.get(name.topic)
    if partition is None or topic is None:
        return _Deletion(name, why_absent(broker, *name))
    if "delete" not in broker.cluster.topic_settings(topic).cleanup_policy:
        return _Deletion(name, Code.POLICY_VIOLATION)
    try:
        partition.check_leader()
        check_committed(partition, log_ends)
        moved: _Moved = asyncio.get_running_loop().create_future()
        partition.delete_records(
            before, broker.clock.now_ms(), timeout_ms=timeout_ms,
            done=lambda result: None if moved.done() else moved.set_result(result))
    except QuipuError as error:
        return _Deletion(name, code_of(error))
    return _Deletion(name, moved=moved)


async def _finish(deletion: _Deletion) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=deletion.topic_partition.partition, error_code=deletion.error,
        low_watermark=NO_WATERMARK)
    if deletion.moved is not None:
        moved = await deletion.moved
        if isinstance(moved, QuipuError):
            result.error_code = code_of(moved)
        else:
            result.low_watermark = moved
    return result
