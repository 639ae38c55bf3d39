"""Timeouts of 0 and elements that a request names twice, answered as Kafka does."""

from typing import Any, cast

import pytest

from quipu.broker.handlers import k19_create_topics, k20_delete_topics, k43_elect_leaders
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.wire.messages import RESPONSES
from quipu.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quipu.wire.messages.k20_delete_topics import DeleteTopicsRequest
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from quipu.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from quipu.wire.schema import Request
from tests.broker.clusters import ABroker, a_broker, ask, versions
from tests.looped import looped

TIMED_OUT = Code.REQUEST_TIMED_OUT


async def sent(broker: ABroker, request: Request, version: int) -> Any:
    """The response to a client, from the node that it asks."""
    response = await forwarding.forward(cast("Broker", broker), forwarding.ClientRequest(
        request, request.encode(version), Context(version, 7, "test", "::1")))
    body = (response.body if isinstance(response, forwarding.ForwardedResponse)
            else response.encode(version))
    return RESPONSES[request.KEY].decode(body, version)


@pytest.mark.parametrize("timeout", [0, -1])
@looped
async def test_a_request_without_time_is_not_begun(timeout: int) -> None:
    """K5: REQUEST_TIMED_OUT for each part, as in Kafka, and nothing changes."""
    broker = await a_broker(NewTopic("t"))
    created = await sent(broker, CreateTopicsRequest(timeout=timeout, topics=[
        CreatableTopic(name="new", num_partitions=1, replication_factor=1)]), 7)
    deleted = await sent(broker, DeleteTopicsRequest(topic_names=["t"], timeout=timeout), 5)
    added = await sent(broker, CreatePartitionsRequest(timeout=timeout, topics=[
        CreatePartitionsTopic(name="t", count=9, assignments=None)]), 3)

    assert [topic.error_code for topic in created.topics] == [TIMED_OUT]
    assert [topic.error_code for topic in deleted.responses] == [TIMED_OUT]
    assert [topic.error_code for topic in added.results] == [TIMED_OUT]
    assert {name: len(topic.partitions) for name, topic in broker.cluster.state.topics.items()} == {
        "t": 1}


@pytest.mark.parametrize("version", versions(ElectLeadersRequest))
@looped
async def test_an_election_without_time_is_refused_as_a_whole_and_in_parts(version: int) -> None:
    """K6: v0 has no error of the whole request."""
    broker = await a_broker(NewTopic("t"))
    response = await sent(broker, ElectLeadersRequest(
        timeout=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]), version)

    assert response.error_code == (TIMED_OUT if version else Code.NONE)
    assert response.replica_election_results[0].partition_result[0].error_code == TIMED_OUT


@looped
async def test_a_move_without_time_is_refused_as_a_whole_and_in_parts() -> None:
    """K6: so are moves."""
    broker = await a_broker(NewTopic("t"))
    response = await sent(broker, AlterPartitionReassignmentsRequest(timeout=0, topics=[
        ReassignableTopic(name="t", partitions=[
            ReassignablePartition(partition_index=0, replicas=[1])])]), 1)

    assert response.error_code == TIMED_OUT
    assert response.responses[0].partitions[0].error_code == TIMED_OUT
    assert response.allow_replication_factor_change


@pytest.mark.parametrize("names", [["a", "a", "b"], ["nope", "b", "nope"]])
@looped
async def test_a_topic_that_is_to_be_deleted_twice_is_not(names: list[str]) -> None:
    """K5: one result, INVALID_REQUEST, also if there is no such topic; others are deleted."""
    broker = await a_broker(NewTopic("a"), NewTopic("b"))
    response = await ask(
        broker, k20_delete_topics, DeleteTopicsRequest(topic_names=names), 5)
    (twice,) = {name for name in names if names.count(name) > 1}

    assert {each.name: each.error_code for each in response.responses} == {
        twice: Code.INVALID_REQUEST, "b": Code.NONE}
    assert len(response.responses) == 2
    assert list(broker.cluster.state.topics) == ["a"]


@pytest.mark.parametrize("version", versions(ElectLeadersRequest))
@looped
async def test_elections_are_answered_in_the_order_of_the_request(version: int) -> None:
    """K6: what is named twice, and a topic without partitions, as Kafka does."""
    broker = await a_broker(NewTopic("t", 2))
    response = await ask(broker, k43_elect_leaders, ElectLeadersRequest(topic_partitions=[
        TopicPartitions(topic=topic, partitions=partitions)
        for topic, partitions in (("t", [1, 1]), ("u", []), ("t", [0]))]), version)

    assert [(each.topic, [(part.partition_id, part.error_code) for part in each.partition_result])
            for each in response.replica_election_results] == [
        ("t", [(1, Code.ELECTION_NOT_NEEDED)] * 2), ("u", []),
        ("t", [(0, Code.ELECTION_NOT_NEEDED)])]


@looped
async def test_of_a_setting_that_a_new_topic_has_twice_the_last_counts() -> None:
    """K5: as in Kafka."""
    broker = await a_broker()
    response = await ask(broker, k19_create_topics, CreateTopicsRequest(topics=[CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, configs=[
            CreatableTopicConfig(name="retention.ms", value=value) for value in ("7", "8")])]), 7)

    assert response.topics[0].error_code == Code.NONE
    assert broker.cluster.state.topics["t"].configs == {"retention.ms": "8"}
