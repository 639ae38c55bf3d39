"""Two brokers to read from: a node of ours, and librdkafka's mock cluster."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node in a process of its own."""
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def broker(node: RunningNode) -> Broker:
    """The node's topics."""
    return Broker(node.bootstrap)


@pytest.fixture(scope="session")
def mock() -> Iterator[tuple[Producer, str]]:
    """Two brokers that share no code with ours; topics are made by producing to them."""
    producer = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "none",
                         "log_level": 0})
    told = producer.list_topics(timeout=30).brokers.values()
    yield producer, ",".join(f"{each.host}:{each.port}" for each in told)
    producer.flush(5)
