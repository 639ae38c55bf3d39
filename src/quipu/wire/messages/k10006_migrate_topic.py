"""MigrateTopic — API key 10006, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * `action` 0: how far the migration of a topic on chains to a diskless one is;
      1: begin it, unless it is under way or done; 2: call it off
    * a partition's `step`: 0 not begun, 1 sealing, 2 copying, 3 switching, 4 done
"""

from uuid import UUID

from quipu.wire.fields import array, int8, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class MigrateTopicRequest(Request, key=10_006, versions="0", flexible="0+"):
    """Begin, call off or describe a migration."""

    name: str = string()
    action: int = int8()
    timeout: int = int32(default=30_000)


class MigratedPartition(Struct):
    """How far a partition is."""

    partition_index: int = int32()
    step: int = int8()
    bytes_left: int = int64(default=-1)  # to be copied to the remote tier; -1: not known
    trouble: str | None = string(nullable="0+", default=None)  # why the last step has failed


class MigrateTopicResponse(Response, key=10_006, versions="0", flexible="0+"):
    """How far a migration is, once the request is carried out."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topic_id: UUID = uuid()
    partitions: list[MigratedPartition] = array(MigratedPartition)
