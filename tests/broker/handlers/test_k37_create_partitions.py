"""CreatePartitions in every version."""

import pytest

from quipu.broker.handlers import k37_create_partitions
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.broker.clusters import a_broker, ask, versions
from tests.looped import looped


def wanted(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    placed = None if assignments is None else [
        CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=placed)


@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
@looped
async def test_topics_grow(version: int) -> None:
    """K5, K12: one result per topic, never an empty list."""
    broker = await a_broker(NewTopic("a"), NewTopic("b"), NewTopic("c"))
    request = CreatePartitionsRequest(topics=[
        wanted("a", 3), wanted("b", 1), wanted("x", 2), wanted("c", 2, [[1]])])

    response = await ask(broker, k37_create_partitions, request, version)

    assert [(r.name, r.error_code) for r in response.results] == [
        ("a", Code.NONE), ("b", Code.INVALID_PARTITIONS),
        ("x", Code.UNKNOWN_TOPIC_OR_PARTITION), ("c", Code.NONE)]
    assert response.results[0].error_message is None
    assert len(broker.cluster.state.topics["a"].partitions) == 3
    assert broker.partitions.notifications[-2:] == [("added", "a", 1, 3), ("added", "c", 1, 2)]


@looped
async def test_validate_only_adds_nothing() -> None:
    broker = await a_broker(NewTopic("a"))
    request = CreatePartitionsRequest(topics=[wanted("a", 3)], validate_only=True)

    response = await ask(broker, k37_create_partitions, request, 3)

    assert response.results[0].error_code == Code.NONE
    assert len(broker.cluster.state.topics["a"].partitions) == 1
