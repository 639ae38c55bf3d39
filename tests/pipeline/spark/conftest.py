"""One Spark and one node for all tests of this folder: both take long to start.

    def test_it(spark, broker, tmp_path): ...

Tests get topics of their own (`broker.topic()`), and sessions of their own where they change one
(`spark.newSession()`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quipu.pipeline.spark.session import session
from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all of them, so that one Spark serves all of them."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))  # the first one waits for the start


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small Spark that starts fast: two cores, and no time spent on optimizing bytecode."""
    folder = tmp_path_factory.mktemp("spark")
    started = session(
        "local[2]",
        settings={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        log=folder / "spark.log",
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node in a process of its own."""
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def broker(node: RunningNode) -> Broker:
    """The node's topics."""
    return Broker(node.bootstrap)
