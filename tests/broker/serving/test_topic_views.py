"""Views of topics: made once, and made anew when something changed."""

from typing import Any

import pytest

from quipu.broker.handlers import k03_metadata
from quipu.broker.serving import topic_views
from quipu.controller.topic_requests import NewPartitions, NewTopic
from quipu.model.errors import QuipuError
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from tests.broker.clusters import ABroker, a_broker, ask
from tests.looped import looped

VERSION = 12


async def view(broker: ABroker) -> list[MetadataResponsePartition]:
    """The partitions of topic a, as a client gets them."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    response = await ask(broker, k03_metadata, request, VERSION)
    partitions: list[MetadataResponsePartition] = response.topics[0].partitions
    return partitions


@looped
async def test_a_large_topic_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """K5, K8: ten thousand partitions are listed without being built again each time."""
    broker = await a_broker(NewTopic("a", 10_000))
    made = 0

    def counted(*arguments: Any) -> MetadataResponsePartition:
        nonlocal made
        made += 1
        return make(*arguments)

    make = topic_views._partition
    monkeypatch.setattr(topic_views, "_partition", counted)
    first = await view(broker)

    assert len(first) == made == 10_000
    assert await view(broker) == first
    assert made == 10_000


@looped
async def test_a_view_follows_its_topic() -> None:
    """K5: new partitions, failures and recoveries are seen at once."""
    broker = await a_broker(NewTopic("a", 2))
    assert [partition.leader_id for partition in await view(broker)] == [1, 1]

    await broker.cluster.controller.create_partitions([NewPartitions("a", 3)])
    assert [partition.leader_id for partition in await view(broker)] == [1, 1, 1]

    broker.partitions.failed = {("a", 2): QuipuError("gone")}
    assert [partition.leader_id for partition in await view(broker)] == [1, 1, -1]

    broker.partitions.failed = {}
    assert [partition.leader_id for partition in await view(broker)] == [1, 1, 1]
