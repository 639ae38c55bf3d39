"""AlterReplicaLogDirs — API key 34, versions 1-2.

Behaviour
    * moves replicas of the receiving broker to other directories of it
Versions
    v2  flexible encoding
"""

from quipu.wire.fields import INT32, array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


class AlterReplicaLogDir(Struct):
    """A directory, and the partitions that are to move there."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    """Move replicas to these directories."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether the move of one replica has begun."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """Results for one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    """The result for each partition."""

    throttle_time: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
