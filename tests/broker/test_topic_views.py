"""Views of topics: made once, and made anew when something changed."""

from typing import cast

from quipu.broker.context import Broker
from quipu.controller.topics import NewPartitions, NewTopic
from quipu.model.errors import QuipuError
from tests.broker.clusters import ABroker, a_broker
from tests.looped import looped


def view(broker: ABroker) -> list:
    cluster = broker.cluster
    return cluster.views.partitions(cast("Broker", broker), cluster.state.topics["a"])


@looped
async def test_a_large_topic_is_made_into_a_view_once() -> None:
    """K5: ten thousand partitions are listed without being built again each time."""
    broker = await a_broker(NewTopic("a", 10_000))
    first = view(broker)

    assert len(first) == 10_000
    assert view(broker) is first


@looped
async def test_a_view_follows_its_topic() -> None:
    """K5: new partitions, failures and recoveries are seen at once."""
    broker = await a_broker(NewTopic("a", 2))
    assert [partition.leader_id for partition in view(broker)] == [1, 1]

    await broker.cluster.create_partitions([NewPartitions("a", 3)])
    assert [partition.leader_id for partition in view(broker)] == [1, 1, 1]

    broker.partitions.failed = {("a", 2): QuipuError("gone")}
    assert [partition.leader_id for partition in view(broker)] == [1, 1, -1]

    broker.partitions.failed = {}
    assert [partition.leader_id for partition in view(broker)] == [1, 1, 1]
