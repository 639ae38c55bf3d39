"""DescribeDisklessRuns — API key 10004, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * returns in which objects the batches of diskless partitions are, and at which offsets, for
      clients that read objects: runs that follow each other, the first of which holds the offset
      that is asked for; a client goes on after the last one
    * no run if the offset is at the high watermark, or out of range; the offsets of the partition
      tell which
"""

from uuid import UUID

from quipu.wire.fields import array, boolean, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class DisklessRunsPartition(Struct):
    """A partition, and the offsets [start_offset, end_offset) that are wanted."""

    partition_index: int = int32()
    start_offset: int = int64()
    end_offset: int = int64()


class DisklessRunsTopic(Struct):
    """A topic, by name."""

    name: str = string()
    partitions: list[DisklessRunsPartition] = array(DisklessRunsPartition)


class DescribeDisklessRunsRequest(Request, key=10_004, versions="0", flexible="0+"):
    """Get runs of partitions: at most `limit` of each, and about `max_bytes` of each."""

    limit: int = int32(default=1000)
    max_bytes: int = int64(default=1 << 30)
    topics: list[DisklessRunsTopic] = array(DisklessRunsTopic)


class DescribedRun(Struct):
    """Batches that follow each other in one object; they are stored without their offsets."""

    key: str = string()  # of the object
    position: int = int64()
    size: int = int64()  # bytes
    batch_count: int = int32()
    base_offset: int = int64()
    end_offset: int = int64()  # of the record after the last one


class DescribedDisklessPartition(Struct):
    """A page of runs, and the partition's offsets when it was made."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    is_diskless: bool = boolean()
    log_start_offset: int = int64(default=-1)
    diskless_start_offset: int = int64(default=-1)  # records below it are in the remote tier
    high_watermark: int = int64(default=-1)
    runs: list[DescribedRun] = array(DescribedRun)


class DescribedDisklessTopic(Struct):
    """A topic, by name and by id."""

    name: str = string()
    topic_id: UUID = uuid()
    partitions: list[DescribedDisklessPartition] = array(DescribedDisklessPartition)


class DescribeDisklessRunsResponse(Response, key=10_004, versions="0", flexible="0+"):
    """Runs by partition, and the URL of the object store.

    It has no credentials, and no paths of files of the node; null: no other process can open the
    store.
    """

    throttle_time: int = int32()
    storage_url: str | None = string(nullable="0+", default=None)
    topics: list[DescribedDisklessTopic] = array(DescribedDisklessTopic)
