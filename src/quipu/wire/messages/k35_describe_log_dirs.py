"""DescribeLogDirs — API key 35.
"""

from quipu.wire.fields import INT32, array, boolean, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class DescribableLogDirTopic(Struct):
    """TODO."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class DescribeLogDirsRequest(Request, key=35, versions="1-4", flexible="2+"):
    """TODO."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """TODO."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """TODO."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)


class DescribeLogDirsResponse(Response, key=35, versions="1-4", flexible="2+"):
    """TODO."""

    throttle_time: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
