"""DescribeLogDirs — API key 35, versions 1-4.

Behaviour
    * a node has one directory; it is told with the size of each log asked for, or of all for null
    * a partition that is not here is left out, as Kafka leaves it out
    * internal logs are no partitions and are not told

Versions
    v2  flexible encoding     v3  an error code for the whole answer
    v4  size of the volume and what is left of it
"""

from collections.abc import Iterator

from quipu.broker.context import Broker, Context
from quipu.broker.partition import Partition
from quipu.model.errors import QuipuError
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
    for partition in _asked(broker, request):
        await context.pause()
        name, index = partition.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DescribeLogDirsTopic(
                name=name, partitions=context.array(DescribeLogDirsPartition))
        topic.partitions.append(DescribeLogDirsPartition(
            partition_index=index, partition_size=partition.log.size_bytes))
    result = DescribeLogDirsResult(
        log_dir=broker.directory.path, topics=context.array(DescribeLogDirsTopic))
    for topic in topics.values():
        await context.pause()
        result.topics.append(topic)
    try:
        result.total_bytes, result.usable_bytes = broker.directory.space()
    except QuipuError as error:
        result.error_code = error.code
    return DescribeLogDirsResponse(results=[result])


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> Iterator[Partition]:
    if request.topics is None:
        yield from broker.partitions.all()
        return
    for topic in request.topics:
        for index in topic.partitions:
            partition = broker.partitions.find(topic.topic, index)
            if partition is not None:
                yield partition
