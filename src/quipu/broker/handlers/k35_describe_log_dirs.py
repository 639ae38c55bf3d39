"""DescribeLogDirs — API key 35, versions 1-4.

Behaviour
    * a node has one directory; the response has the size of each requested log, or of all for null
    * a partition that this node does not have is left out, as in Kafka
    * internal logs are not partitions and are left out; so are diskless partitions, of which no
      node has anything on its disk

Versions
    v2  flexible encoding     v3  an error code for the whole response
    v4  size of the volume, and how much of it is free
"""

from collections.abc import Iterator

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import QuipuError
from quipu.model.partition_log import PartitionLog
from quipu.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(
    broker: Broker, request: DescribeLogDirsRequest, context: Context
) -> DescribeLogDirsResponse:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in _requested(broker, request):
        await context.pause()
        name, index = partition.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DescribeLogDirsTopic(
                name=name, partitions=context.array(DescribeLogDirsPartition))
        topic.partitions.append(DescribeLogDirsPartition(
            partition_index=index, partition_size=partition.size_bytes,
            offset_lag=partition.offset_lag))
    result = DescribeLogDirsResult(
        log_dir=broker.directory.path, topics=context.array(DescribeLogDirsTopic))
    for topic in topics.values():
        await context.pause()
        result.topics.append(topic)
    try:
        result.total_bytes, result.usable_bytes = broker.directory.space()
    except QuipuError as error:
        result.error_code = code_of(error)
    return DescribeLogDirsResponse(results=[result])


def _requested(broker: Broker, request: DescribeLogDirsRequest) -> Iterator[PartitionLog]:
    if request.topics is None:
        yield from (each for each in broker.partitions.all() if not each.is_diskless)
        return
    for topic in request.topics:
        for index in topic.partitions:
            partition = broker.partitions.find(topic.topic, index)
            if partition is not None and not partition.is_diskless:
                yield partition
