"""Elections, reassignments and brokers: the responses of one node, in every version."""

from typing import Any

import pytest

from quipu.broker import handlers
from quipu.broker.handlers import (
    k43_elect_leaders,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k55_describe_quorum,
    k64_unregister_broker,
)
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from quipu.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from quipu.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from quipu.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


@pytest.mark.parametrize("version", versions(ElectLeadersRequest))
@looped
async def test_elections_are_told_per_partition(version: int) -> None:
    """K6: one that is not needed, and one of a partition that does not exist."""
    broker = await a_broker(NewTopic("t", 2))
    request = ElectLeadersRequest(topic_partitions=[
        TopicPartitions(topic="t", partitions=[1, 7]), TopicPartitions(topic="u", partitions=[0])])

    response = await ask(broker, k43_elect_leaders, request, version)

    assert [(each.topic, result.partition_id, result.error_code)
            for each in response.replica_election_results for result in each.partition_result] == [
        ("t", 1, Code.ELECTION_NOT_NEEDED), ("t", 7, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, Code.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", versions(ElectLeadersRequest))
def test_an_election_that_cannot_be_is_told_in_every_version(version: int) -> None:
    """K8, K12: v0 has no error of its own; it has no field for a request for all partitions."""
    error = RequestError("no controller is known", code=Code.REQUEST_TIMED_OUT)
    named = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 7])])

    response: Any = handlers.refused(named, version, error)
    of_all: Any = handlers.refused(ElectLeadersRequest(topic_partitions=None), version, error)

    if version == 0:
        assert [(result.partition_id, result.error_code)
                for each in response.replica_election_results
                for result in each.partition_result] == [(0, error.code), (7, error.code)]
        assert of_all is None
    else:
        assert response.error_code == of_all.error_code == error.code


@looped
async def test_an_election_of_all_tells_only_those_that_were_needed() -> None:
    """K6: as Kafka does."""
    broker = await a_broker(NewTopic("t", 2))

    response = await ask(broker, k43_elect_leaders, ElectLeadersRequest(topic_partitions=None), 2)

    assert (response.error_code, response.replica_election_results) == (Code.NONE, [])
    with pytest.raises(QuipuError, match="election type 5"):
        await ask(broker, k43_elect_leaders, ElectLeadersRequest(election_type=5), 2)


@pytest.mark.parametrize("version", versions(AlterPartitionReassignmentsRequest))
@looped
async def test_a_partition_can_only_go_to_nodes_that_there_are(version: int) -> None:
    """K6: the response names the one that is not registered."""
    broker = await a_broker(NewTopic("t", 3))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[
        ReassignablePartition(partition_index=0, replicas=[1]),
        ReassignablePartition(partition_index=1, replicas=[1, 2]),
        ReassignablePartition(partition_index=2, replicas=None)])])

    response = await ask(broker, k45_alter_partition_reassignments, request, version)

    (topic,) = response.responses
    assert [each.error_code for each in topic.partitions] == [
        Code.NONE, Code.INVALID_REPLICA_ASSIGNMENT, Code.NO_REASSIGNMENT_IN_PROGRESS]
    assert "broker 2, which is not registered" in topic.partitions[1].error_message


@looped
async def test_the_replication_factor_stays_if_the_client_says_so() -> None:
    """K6: AllowReplicationFactorChange of version 1."""
    broker = await a_broker(NewTopic("t"))
    for replicas, code in (([1], Code.NONE), ([], Code.INVALID_REPLICA_ASSIGNMENT),
                           ([1, 1], Code.INVALID_REPLICA_ASSIGNMENT)):
        response = await ask(broker, k45_alter_partition_reassignments,
                             AlterPartitionReassignmentsRequest(
                                 allow_replication_factor_change=False,
                                 topics=[ReassignableTopic(name="t", partitions=[
                                     ReassignablePartition(partition_index=0, replicas=replicas)])
                                 ]), 1)
        assert response.responses[0].partitions[0].error_code == code


@looped
async def test_no_partition_moves_by_itself() -> None:
    """K6: the list is empty, for all topics and for some."""
    broker = await a_broker(NewTopic("t"))
    some = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9])]

    for topics in (None, some):
        response = await ask(broker, k46_list_partition_reassignments,
                           ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (Code.NONE, [])


@looped
async def test_a_broker_that_is_up_is_not_forgotten() -> None:
    """K6: nor one that never was."""
    broker = await a_broker()
    for node_id, code in ((1, Code.INVALID_REQUEST), (5, Code.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(QuipuError) as error:
            await ask(broker, k64_unregister_broker, UnregisterBrokerRequest(broker_id=node_id), 0)
        assert error.value.code is code


@pytest.mark.parametrize("version", versions(DescribeQuorumRequest))
@looped
async def test_a_quorum_of_one_is_told(version: int) -> None:
    """K6: its leader and voter is this node."""
    broker = await a_broker()
    request = DescribeQuorumRequest(topics=[
        TopicData(topic_name="__cluster_metadata", partitions=[PartitionData()])])

    response = await ask(broker, k55_describe_quorum, request, version)

    quorum = response.topics[0].partitions[0]
    assert (quorum.error_code, quorum.leader_id) == (Code.NONE, 1)
    assert [voter.replica_id for voter in quorum.current_voters] == [1]
    assert quorum.current_voters[0].log_end_offset == quorum.high_watermark > 0


@looped
async def test_a_quorum_is_asked_for_alone() -> None:
    """K6: a request for anything else besides is unknown as a whole, as in Kafka."""
    broker = await a_broker()
    request = DescribeQuorumRequest(topics=[
        TopicData(topic_name="__cluster_metadata", partitions=[PartitionData()]),
        TopicData(topic_name="t", partitions=[PartitionData(partition_index=3)])])

    response = await ask(broker, k55_describe_quorum, request, 2)

    assert [(each.partition_index, each.error_code) for topic in response.topics
            for each in topic.partitions] == [
        (0, Code.UNKNOWN_TOPIC_OR_PARTITION), (3, Code.UNKNOWN_TOPIC_OR_PARTITION)]
    assert response.nodes == []
