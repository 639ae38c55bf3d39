"""DescribeTopicPartitions: pages, cursors, and no nulls where Java wants arrays."""

import pytest

from quipu.broker import handlers
from quipu.broker.handlers import k75_describe_topic_partitions
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code, RequestError
from quipu.model.settings import BrokerSettings
from quipu.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.clusters import ABroker, a_broker, ask
from tests.looped import looped

TOPICS = (NewTopic("b", 3), NewTopic("a", 2), NewTopic("c", 1))
ALL = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def page(
    broker: ABroker, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit,
        cursor=cursor)
    response = await ask(broker, k75_describe_topic_partitions, request, 0)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def shown(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, partition.partition_index)
            for topic in response.topics for partition in topic.partitions]


@looped
async def test_no_names_ask_for_all_topics_by_name() -> None:
    """K1: kafka-topics --describe."""
    broker = await a_broker(*TOPICS)

    response = await page(broker)

    assert shown(response) == ALL
    assert response.next_cursor is None
    topic = response.topics[0]
    assert topic.topic_id == broker.cluster.state.topics["a"].topic_id
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert partition.eligible_leader_replicas == []
    assert partition.last_known_elr == []


@pytest.mark.parametrize("limit", range(1, 8))
@looped
async def test_pages_follow_each_other_without_a_gap(limit: int) -> None:
    """K12: whatever the size of a page, all partitions are found, each once."""
    broker, cursor, found, pages = await a_broker(*TOPICS), None, [], 0
    while pages < 20:
        response = await page(broker, limit=limit, cursor=cursor)
        assert len(shown(response)) <= limit
        found += shown(response)
        cursor, pages = response.next_cursor, pages + 1
        if cursor is None:
            break

    assert found == ALL
    assert pages == -(-len(ALL) // limit)


@looped
async def test_the_broker_bounds_a_page_too() -> None:
    broker = await a_broker(*TOPICS, settings=BrokerSettings(max_request_partition_size_limit=4))

    response = await page(broker, limit=1000)

    assert shown(response) == ALL[:4]
    assert response.next_cursor == Cursor(topic_name="b", partition_index=2)


@looped
async def test_missing_topics_are_told_so() -> None:
    broker = await a_broker(*TOPICS)

    response = await page(broker, "x", "c", "a/b", "c")

    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a/b", Code.INVALID_TOPIC_EXCEPTION), ("c", Code.NONE),
        ("x", Code.UNKNOWN_TOPIC_OR_PARTITION)]


@looped
async def test_a_cursor_in_a_topic_that_is_gone_goes_on_after_it() -> None:
    broker = await a_broker(*TOPICS)

    response = await page(broker, cursor=Cursor(topic_name="aa", partition_index=5))

    assert shown(response) == ALL[2:]


@looped
async def test_a_cursor_past_the_end_of_a_topic_goes_on_with_the_next() -> None:
    broker = await a_broker(*TOPICS)

    response = await page(broker, cursor=Cursor(topic_name="b", partition_index=9))

    assert shown(response) == ALL[5:]


@pytest.mark.parametrize("limit", [0, -1, -(1 << 31)])
@looped
async def test_a_page_holds_one_partition_at_least(limit: int) -> None:
    """K12: as in Kafka, a limit below 1 counts as 1."""
    response = await page(await a_broker(*TOPICS), limit=limit)

    assert shown(response) == ALL[:1]
    assert response.next_cursor == Cursor(topic_name="a", partition_index=1)


@pytest.mark.parametrize("names", [(), ("a", "b")])
@pytest.mark.parametrize("cursor", [Cursor(topic_name="a", partition_index=-1),
                                    Cursor(topic_name="zz", partition_index=0)])
@looped
async def test_a_cursor_that_leads_nowhere_fails_each_named_topic(
    names: tuple[str, ...], cursor: Cursor
) -> None:
    """K12: INVALID_REQUEST per topic, as in Kafka, and the connection stays; nothing if none is
    named.
    """
    response = await page(await a_broker(*TOPICS), *names, cursor=cursor)

    assert [(topic.name, topic.error_code, topic.partitions) for topic in response.topics] == [
        (name, Code.INVALID_REQUEST, []) for name in names]
    assert response.next_cursor is None


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_a_refusal_is_told_also_if_no_topic_was_named(names: tuple[str, ...]) -> None:
    """K8: the response has no field for an error, and a topic's result may lack a name."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])

    response = handlers.refused(request, 0, RequestError("no", code=Code.INVALID_REQUEST))

    assert isinstance(response, DescribeTopicPartitionsResponse)
    decoded = DescribeTopicPartitionsResponse.decode(memoryview(response.encode(0)), 0)
    assert [(t.name, t.error_code) for t in decoded.topics] == [
        (name, Code.INVALID_REQUEST) for name in names or (None,)]


@looped
async def test_a_page_that_is_full_names_no_further_topic() -> None:
    """K12: the next page begins with it, also if it does not exist, as in Kafka."""
    response = await page(await a_broker(*TOPICS), "c", "x", limit=1)

    assert [topic.name for topic in response.topics] == ["c"]
    assert response.next_cursor == Cursor(topic_name="x", partition_index=0)
