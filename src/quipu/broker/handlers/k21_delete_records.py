"""DeleteRecords — API key 21, versions 0-2.

Behaviour
    * moves the log start offset forward; bytes go later, with the segment that holds them
    * offset -1 means up to the high watermark; one below the log start changes nothing
    * the answer tells where the log starts now, once that is as durable as the topic's records
    * answers per partition: one bad partition does not fail the others

Versions
    v2  flexible encoding
"""

import asyncio

from quipu.broker.context import Broker, Context
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import Offset
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_WATERMARK = -1


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse:
    del context
    return DeleteRecordsResponse(topics=[
        DeleteRecordsTopicResult(name=topic.name, partitions=await asyncio.gather(*(
            _delete(broker, topic.name, wanted) for wanted in topic.partitions)))
        for topic in request.topics
    ])


async def _delete(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=NO_WATERMARK)
    partition = broker.partitions.find(topic, wanted.partition_index)
    if partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    try:
        low_watermark = partition.log.delete_records(
            Offset(wanted.offset), broker.clock.now_ms())
        if partition.acks_wait:
            await partition.log.flush()
        answer.low_watermark = low_watermark
    except QuipuError as error:
        answer.error_code = error.code
    return answer
