"""DeleteRecords — API key 21, versions 0-2.

Behaviour
    * moves the log start offset forward; bytes go later, with the segment that holds them
    * offset -1 means up to the high watermark, which is not below anything that a client has read
      before (settling.py); an offset below the log start changes nothing
    * only the node that leads does it; the answer tells where the log starts now, once that is
      committed, as any other record is
    * answers per partition: one bad partition does not fail the others

Versions
    v2  flexible encoding
"""

import asyncio

from quipu.broker.context import Broker, Context
from quipu.broker.routing import why_absent
from quipu.broker.settling import check_settled, settle
from quipu.model.errors import QuipuError
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
            _delete(broker, topic.name, wanted, request.timeout)
            for wanted in topic.partitions)))
        for topic in request.topics
    ])


async def _delete(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=NO_WATERMARK)
    partition = broker.partitions.find(topic, wanted.partition_index)
    if partition is None:
        answer.error_code = why_absent(broker, topic, wanted.partition_index)
        return answer
    try:
        partition.must_lead()
        check_settled(partition, await settle([partition]))
        low_watermark = partition.delete_records(Offset(wanted.offset), broker.clock.now_ms())
        await partition.committed(partition.log.log_end, timeout_ms=timeout_ms)
        answer.low_watermark = low_watermark
    except QuipuError as error:
        answer.error_code = error.code
    return answer
