"""Clients that write to, cut, starve or delete the topic that keeps committed offsets."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quipu.model.errors import Code
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.wire.messages.k00_produce import ProduceResponse
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quipu.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from quipu.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from quipu.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from quipu.wire.messages.k33_alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from quipu.wire.schema import Request, Response
from tests.harness.node import RunningNode
from tests.harness.raw import RawConnection
from tests.hostile.bystander import PRODUCE_VERSION, TOPIC, Bystander, produce_request

GROUP = "careful"
PARTITIONS = range(4)  # of the topic
REFUSED = {Code.INVALID_TOPIC_EXCEPTION}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """A node whose groups have committed, and that looks for old segments all the time."""
    with RunningNode(tmp_path / "data", settings={
            "log.retention.check.interval.ms": "100", "log.roll.ms": "1000"}) as running:
        ask(running, CreateTopicsRequest(timeout=10_000, topics=[
            CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1)]), 7)
        ask(running, FindCoordinatorRequest(key=GROUP), 3)
        for number in range(20):
            committed = ask(running, OffsetCommitRequest(
                group_id=f"{GROUP}-{number}", generation_id_or_member_epoch=-1, retention_time=-1,
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=number, committed_metadata="")])]), 8)
            assert isinstance(committed, OffsetCommitResponse)
            assert committed.topics[0].partitions[0].error_code == 0
        yield running
        assert running.stop() == 0


def ask(node: RunningNode, request: Request, version: int) -> Response:
    with RawConnection(node.host, node.port) as connection:
        return connection.ask(request, version)


def committed_offsets(node: RunningNode) -> list[int]:
    found = []
    for number in range(20):
        answer = ask(node, OffsetFetchRequest(group_id=f"{GROUP}-{number}", topics=None), 7)
        assert isinstance(answer, OffsetFetchResponse)
        found += [part.committed_offset for topic in answer.topics for part in topic.partitions]
    return found


def alter(node: RunningNode, kind: int, name: str, **values: str) -> int:
    answer = ask(node, AlterConfigsRequest(resources=[AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[
            AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in values.items()])]), 2)
    assert isinstance(answer, AlterConfigsResponse)
    return answer.responses[0].error_code


def test_committed_offsets_survive_every_request(node: RunningNode) -> None:
    """K5, K8: Produce, DeleteRecords, AlterConfigs, defaults of brokers, DeleteTopics, restart."""
    with Bystander(node) as bystander, RawConnection(node.host, node.port) as connection:
        produced = connection.ask(produce_request(CONSUMER_OFFSETS, b"forged"), PRODUCE_VERSION)
        assert isinstance(produced, ProduceResponse)
        part = produced.responses[0].partition_responses[0]
        assert {part.error_code} == REFUSED
        assert "own topic" in (part.error_message or "")

        cut = connection.ask(DeleteRecordsRequest(timeout=1000, topics=[DeleteRecordsTopic(
            name=CONSUMER_OFFSETS, partitions=[
                DeleteRecordsPartition(partition_index=index, offset=-1)
                for index in PARTITIONS])]), 2)
        assert isinstance(cut, DeleteRecordsResponse)
        assert {each.error_code for each in cut.topics[0].partitions} == REFUSED

        assert {alter(node, 2, CONSUMER_OFFSETS, retention_ms="1", cleanup_policy="delete")
                } == REFUSED
        assert {alter(node, 2, CONSUMER_OFFSETS)} == REFUSED, "its settings are removed"
        assert alter(node, 4, "", log_retention_ms="1", log_retention_bytes="1",
                     log_cleanup_policy="delete", log_segment_bytes="1048576") == 0

        gone = connection.ask(DeleteTopicsRequest(
            topic_names=[CONSUMER_OFFSETS], timeout=1000), 5)
        assert isinstance(gone, DeleteTopicsResponse)
        assert {gone.responses[0].error_code} == REFUSED
        time.sleep(1)
    bystander.verdict()
    assert committed_offsets(node) == list(range(20))
    node.restart()
    time.sleep(0.3)
    assert committed_offsets(node) == list(range(20))
    shown = ask(node, DescribeConfigsRequest(resources=[DescribeConfigsResource(
        resource_type=2, resource_name=CONSUMER_OFFSETS,
        configuration_keys=["retention.ms", "cleanup.policy"])]), 4)
    assert isinstance(shown, DescribeConfigsResponse)
    assert {entry.name: entry.value for entry in shown.results[0].configs} == {
        "retention.ms": "-1", "cleanup.policy": "compact"}
