"""What the node itself says of what a client did, asked without a client library."""

from collections.abc import Sequence

from quipu.model.errors import Code
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quipu.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from quipu.wire.record_batch import BatchHeader, parse_header
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection

FETCH_VERSION = 11
FETCH_SIZE_MAX = 1 << 20


def batches(node: RunningNode, topic: str) -> list[BatchHeader]:
    """The headers of the batches in partition 0, as they are sent to consumers."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_SIZE_MAX)
    request = FetchRequest(max_wait=0, min_bytes=0, max_bytes=FETCH_SIZE_MAX, session_epoch=-1,
                           topics=[FetchTopic(topic=topic, partitions=[part])])
    with RawConnection(node.host, node.port) as connection:
        response = connection.ask(request, FETCH_VERSION)
    assert isinstance(response, FetchResponse)
    records = response.responses[0].partitions[0].records
    assert records is not None
    found, position = [], 0
    while position < len(records):
        found.append(parse_header(records, position))
        position += found[-1].size
    return found


def idempotent_producers(nodes: Sequence[RunningNode], topic: str) -> list[ProducerState]:
    """The producers that partition 0 knows by id and sequence, asked of the node that leads it."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    found = []
    for node in nodes:
        with RawConnection(node.host, node.port) as connection:
            response = connection.ask(request, 0)
        assert isinstance(response, DescribeProducersResponse)
        partition = response.topics[0].partitions[0]
        if partition.error_code != Code.NOT_LEADER_OR_FOLLOWER:
            assert partition.error_code == Code.NONE
            found.append(partition.active_producers)
    (one,) = found
    return one
