"""DeleteRecords — API key 21, versions 0-2.

Behaviour
    * moves the log start offset forward; -1 means up to the high watermark
Versions
    v2  flexible encoding
"""

from quipu.wire.fields import array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DeleteRecordsPartition(Struct):
    """The offset before which records of one partition are deleted."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    """Delete the records before these offsets."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """The new log start offset of one partition."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    """The new log start offsets."""

    throttle_time: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
