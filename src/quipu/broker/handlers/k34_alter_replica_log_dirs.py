"""AlterReplicaLogDirs — API key 34, versions 1-2.

Behaviour
    * a node has one directory: a replica that is to stay in it stays, and any other directory is
      LOG_DIR_NOT_FOUND, as in Kafka
    * a partition of which this node has no replica on its disk is UNKNOWN_TOPIC_OR_PARTITION
    * responds per partition: an error of one partition does not fail the others
Versions
    v2  flexible encoding
"""

from posixpath import normpath

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    broker: Broker, request: AlterReplicaLogDirsRequest, context: Context
) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for wanted in request.dirs:
        is_here = normpath(wanted.path) == normpath(broker.directory.path)
        for topic in wanted.topics:
            result = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(
                topic_name=topic.name, partitions=context.array(AlterReplicaLogDirPartitionResult)))
            for index in topic.partitions:
                await context.pause()
                result.partitions.append(AlterReplicaLogDirPartitionResult(
                    partition_index=index,
                    error_code=_moved(broker, topic.name, index) if is_here
                    else Code.LOG_DIR_NOT_FOUND))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _moved(broker: Broker, topic: str, index: int) -> Code:
    partition = broker.partitions.find(topic, index)
    has_replica = partition is not None and not partition.is_diskless
    return Code.NONE if has_replica else Code.UNKNOWN_TOPIC_OR_PARTITION
