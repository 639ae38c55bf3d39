"""One node for all tests of the pipeline that want a broker."""

from collections.abc import Iterator

import pytest

from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node in a process of its own; messages may be from 1970, and are kept."""
    directory = tmp_path_factory.mktemp("node") / "data"
    with RunningNode(directory, settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="session")
def broker(node: RunningNode) -> Broker:
    """The node's topics."""
    return Broker(node.bootstrap)
