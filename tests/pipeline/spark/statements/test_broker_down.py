"""A broker that is away when a pipeline starts, and comes back."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quipu.cli.sql.runner import EngineRunner, Interrupted
from quipu.cli.sql.spark_engine import SparkEngine
from quipu.pipeline.spark.statements.catch_up import NotCaughtUp
from quipu.pipeline.sql.parser import pieces
from tests.harness.node import RunningNode
from tests.harness.progress import slowdown
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import Workbench, catch_up

SOON_SECONDS = 2.0  # 1 s, and as much for a machine with something else to do
COUNT = "SELECT n FROM v"


def test_a_pipeline_starts_without_its_broker_and_goes_on_when_it_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """I11, I13, I20: views wait, say why, and take in what they missed."""
    settings = {"quipu.wait.ms": "2000"}
    with RunningNode(tmp_path / "data") as node:
        broker = Broker(node.bootstrap)
        topic = broker.topic()
        broker.send(topic, ":a", ":b")

        def engine() -> contextlib.closing[SparkEngine]:
            return contextlib.closing(SparkEngine(
                tmp_path / "state", bootstrap=node.bootstrap, spark=spark, settings=settings))

        with engine() as first:
            work = Workbench(first.pipeline, broker)
            name = work.source_of(topic, "FORMAT TEXT")
            work.do(f"CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM {name}")
            catch_up(first.pipeline)
            assert work.rows(COUNT) == [(2,)]
        node.kill()

        with engine() as second, EngineRunner(second) as runner:
            work = Workbench(second.pipeline, broker)
            ((view, materialized, state, error),) = work.do("SHOW VIEWS").rows
            assert (view, materialized, state) == ("v", True, "waiting")
            assert f"no broker responds: {node.bootstrap}" in str(error)
            with pytest.raises(NotCaughtUp, match=r"view v has not .* for 2000 ms .*: no broker"):
                work.rows(COUNT)
            _interrupted_soon(runner)

            node.start()
            broker.send(topic, ":c")
            catch_up(second.pipeline)
            assert work.rows(COUNT) == [(3,)]
            (told,) = second.progress()
            assert (told.state, told.messages, told.lag, told.error) == ("running", 3, 0, None)


def _interrupted_soon(runner: EngineRunner) -> None:
    """Ctrl-C ends a SELECT that waits for the broker's answer."""
    (piece,) = pieces(COUNT)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark has set its own
    try:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        with pytest.raises(Interrupted):
            runner.wait_for(lambda: runner.engine.run(COUNT, piece), str)
        assert time.monotonic() - begun < 0.5 + SOON_SECONDS * slowdown()
    finally:
        signal.signal(signal.SIGINT, before)
