"""Elements that a request names several times."""

from uuid import UUID

from quipu.wire.duplicates import merge_duplicates
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def topics(*partitions: int, topic_id: int = 1) -> list[OffsetFetchRequestTopics]:
    return [OffsetFetchRequestTopics(
        topic_id=UUID(int=topic_id), partition_indexes=list(partitions))]


def test_names_and_numbers_come_once() -> None:
    """K8: in the order in which they came first."""
    request = DescribeGroupsRequest(groups=["b", "a", "b", "b", "a", "c"])
    merge_duplicates(request)
    assert request.groups == ["b", "a", "c"]


def test_elements_with_the_same_fields_are_joined() -> None:
    """K8: and what they hold comes once, too."""
    request = OffsetFetchRequest(groups=[
        OffsetFetchRequestGroup(group_id="g", topics=topics(0, 1, 0)),
        OffsetFetchRequestGroup(group_id="h", topics=topics(5, 5)),
        OffsetFetchRequestGroup(group_id="g", topics=topics(1, 2) + topics(7, topic_id=2)),
    ])
    merge_duplicates(request)
    assert request == OffsetFetchRequest(groups=[
        OffsetFetchRequestGroup(group_id="g", topics=topics(0, 1, 2) + topics(7, topic_id=2)),
        OffsetFetchRequestGroup(group_id="h", topics=topics(5)),
    ])


def test_everything_takes_the_rest_in() -> None:
    """K8: null asks for all, whatever else is asked for of the same element."""
    request = OffsetFetchRequest(groups=[
        OffsetFetchRequestGroup(group_id="g", topics=topics(0)),
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="g", topics=topics(1)),
    ])
    merge_duplicates(request)
    assert request == OffsetFetchRequest(groups=[
        OffsetFetchRequestGroup(group_id="g", topics=None)])


def test_elements_that_differ_stay() -> None:
    """K8: one partition asked about with two epochs is asked about twice."""
    partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (1, 2, 1)]
    request = OffsetForLeaderEpochRequest(topics=[
        OffsetForLeaderTopic(topic="t", partitions=partitions)])
    merge_duplicates(request)
    assert [each.leader_epoch for each in request.topics[0].partitions] == [1, 2]
