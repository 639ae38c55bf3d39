"""DescribeLogDirs — API key 35, versions 1-4.

Behaviour
    * returns the directories of partitions' logs and the size of each log
    * null means all topics
Versions
    v2  flexible encoding
    v3  an error code for the whole response
    v4  size of the volume, and its free bytes
"""

from quipu.wire.fields import INT32, array, boolean, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DescribableLogDirTopic(Struct):
    """Partitions of one topic to describe."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class DescribeLogDirsRequest(Request, key=35, versions="1-4", flexible="2+"):
    """Get the directories and sizes of logs."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """The log of one partition."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """Logs of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)


class DescribeLogDirsResponse(Response, key=35, versions="1-4", flexible="2+"):
    """The directories."""

    throttle_time: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
