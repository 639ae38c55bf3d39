"""DeleteRecords — API key 21.
"""

from quipu.wire.fields import array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DeleteRecordsPartition(Struct):
    """TODO."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    """TODO."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """TODO."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """TODO."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    """TODO."""

    throttle_time: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
