"""One Spark for all tests of this folder: it takes long to start.

    def test_it(work): ...                       a pipeline that all tests share, see `workbench`
    def test_it(spark, broker, tmp_path): ...    what it is made of, for a pipeline of one's own

Tests get topics of their own (`broker.topic()`), names of their own (`work.name()`), and sessions
of their own where they change one (`spark.newSession()`).  Starting a stream takes a second or
two of both cores: a plain SELECT from a source is much cheaper than a materialized view.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import quipu.pipeline
from quipu.cli.main import main
from quipu.cli.sql import spark_engine
from quipu.pipeline.registry.server import RegistryServer
from quipu.pipeline.spark.session.sessions import session
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.cases.cases import Outcome, Teller
from tests.pipeline.spark.workbench import Workbench

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all of them, so that one Spark serves all of them."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))  # for what hangs: waits are by progress


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark has its logs, and what it writes on the way."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    """A small Spark that starts fast: two cores, and no time spent on optimizing bytecode."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # workers would compile everything anew
    started = session(
        "local[2]",
        settings={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
            "spark.sql.warehouse.dir": str(spark_folder / "warehouse"),
            "spark.local.dir": str(spark_folder / "local"),
        },
        log=spark_folder / "spark.log",
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def workbench(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workbench]:
    """One pipeline for all."""
    settings = {"quipu.wait.ms": "120000"}  # machines that run tests are busy
    state = tmp_path_factory.mktemp("state")
    with quipu.pipeline.connect(spark, state=state, settings=settings) as pipeline:
        yield Workbench(pipeline, broker)


@pytest.fixture
def work(workbench: Workbench) -> Iterator[Workbench]:
    """The pipeline, with a broker; what a test creates is dropped after it."""
    before = {entry.name for entry in workbench.pipeline.catalog.entries()}
    yield workbench
    workbench.drop_all(but=before)


@pytest.fixture
def quipu_sql(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """`quipu sql` in this process and on this Spark, given words; its exit code."""
    monkeypatch.setattr(spark_engine, "SparkEngine", partial(spark_engine.SparkEngine, spark=spark))
    return lambda *words: main(
        ["sql", "--state", str(tmp_path / "state"), "--bootstrap", broker.bootstrap, *words])


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryServer]:
    """A schema registry."""
    with RegistryServer() as server:
        yield server


@pytest.fixture(scope="session")
def teller(workbench: Workbench, registry: RegistryServer) -> Teller:
    """Who tells the stories of cases."""
    told = Teller(workbench, registry.url)
    told.connect()
    return told


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, teller: Teller) -> dict[str, Outcome]:
    """What became of the cases of a module's STORY."""
    return teller.told(request.module.STORY)
