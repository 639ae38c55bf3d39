"""DeleteRecords — API key 21, versions 0-2.

Behaviour
    * moves the log start offset forward; bytes go later, with the segment that holds them
    * offset -1 means up to the high watermark, which is not below anything that a client has read
      before (settling.py); an offset below the log start changes nothing
    * only the node that leads does it; the answer tells where the log starts now, once that is
      committed, as any other record is
    * answers per partition: one bad partition does not fail the others; of a partition that is
      named several times, the last offset counts
    * the cluster's own topics keep their records: INVALID_TOPIC_EXCEPTION

Versions
    v2  flexible encoding
"""

import asyncio
from typing import Final, NamedTuple

from quipu.broker.context import Broker, Context
from quipu.broker.routing import why_absent
from quipu.broker.settling import Marks, check_settled, settle
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


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse:
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics for partition in topic.partitions}
    timeout_ms = min(request.timeout, broker.settings.request_max_wait_ms)
    marks = await settle(
        partition for topic, index in wanted
        if (partition := broker.partitions.find(topic, index)) is not None and partition.may_lead)
    deletions = []
    for (topic, index), before in wanted.items():
        await context.pause()
        name = TopicPartition(topic, index)
        deletions.append(_begin(broker, name, Offset(before), timeout_ms, marks))
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for deletion in deletions:
        await context.pause()
        topic = deletion.topic_partition.topic
        result = topics.setdefault(topic, DeleteRecordsTopicResult(name=topic))
        result.partitions.append(await _finish(deletion))
    return DeleteRecordsResponse(topics=list(topics.values()))


class _Deletion(NamedTuple):
    """A log whose start was moved, unless there is an `error`, and where it starts now."""

    topic_partition: TopicPartition
    error: Code = Code.NONE
    low_watermark: int = NO_WATERMARK
    committed: "asyncio.Future[Exception | None] | None" = None


def _begin(
    broker: Broker, name: TopicPartition, before: Offset, timeout_ms: int, marks: Marks
) -> _Deletion:
    """Move the start of one log; all of a request are moved before any is waited for."""
    if is_internal(name.topic):
        return _Deletion(name, Code.INVALID_TOPIC_EXCEPTION)
    partition = broker.partitions.find(*name)
    if partition is None:
        return _Deletion(name, why_absent(broker, *name))
    try:
        partition.must_lead()
        check_settled(partition, marks)
        low_watermark = partition.delete_records(before, broker.clock.now_ms())
    except QuipuError as error:
        return _Deletion(name, error.code)
    committed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    partition.when_log_committed(
        partition.log.log_end,
        lambda error: None if committed.done() else committed.set_result(error),
        timeout_ms=timeout_ms)
    return _Deletion(name, Code.NONE, low_watermark, committed)


async def _finish(deletion: _Deletion) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=deletion.topic_partition.partition, error_code=deletion.error,
        low_watermark=deletion.low_watermark)
    error = await deletion.committed if deletion.committed is not None else None
    if error is not None:
        answer.low_watermark = NO_WATERMARK
        answer.error_code = (
            error.code if isinstance(error, QuipuError) else Code.KAFKA_STORAGE_ERROR)
    return answer
