"""Work that is kept going, and what is seen of its failures."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import quipu.pipeline
from quipu.client.errors import ClientError
from quipu.pipeline.spark.session import supervisor as module
from quipu.pipeline.spark.session.supervisor import RunState, Supervisor
from quipu.pipeline.spark.statements.catch_up import NotCaughtUp
from tests.harness.node import RunningNode
from tests.harness.progress import FINAL_SECONDS, wait_for
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import Workbench


def test_work_that_fails_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """I11, I20: the last error is there to be seen, until the work makes progress; pipeline.Q1."""
    monkeypatch.setattr(module, "PAUSE_SECONDS_MIN", 0.01)
    attempts = []
    go_on = threading.Event()

    running = threading.Lock()

    def work(stop: threading.Event) -> None:
        assert running.acquire(blocking=False), "two threads run the work"
        try:
            attempt(stop)
        finally:
            running.release()

    def attempt(stop: threading.Event) -> None:
        attempts.append(1)
        if len(attempts) <= 3:
            raise OSError(f"attempt {len(attempts)}")
        go_on.wait(FINAL_SECONDS)
        supervisor.succeeded()
        stop.wait(FINAL_SECONDS)

    supervisor = Supervisor("it", work)
    assert supervisor.state is RunState.STOPPED
    supervisor.start()

    wait_for(lambda: len(attempts) == 4)
    assert supervisor.state is RunState.WAITING
    assert (supervisor.error, supervisor.restarts) == ("attempt 3", 3)
    go_on.set()
    wait_for(lambda: supervisor.state is RunState.RUNNING)
    assert supervisor.error is None
    supervisor.stop()
    assert supervisor.state is RunState.STOPPED
    assert not running.locked()
    with pytest.raises(RuntimeError, match="once"):
        supervisor.start()


def test_a_view_outlives_its_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    """I11, I20: while the broker is gone SELECT says so; when it is back the view goes on."""
    options = "CLIENT ID = 'v', DEFAULT API TIMEOUT MS = 1000, RETRY BACKOFF MAX MS = 100"
    with RunningNode(tmp_path / "node") as node, quipu.pipeline.connect(
        spark, state=tmp_path / "state", settings={"quipu.wait.ms": "20000"}
    ) as pipeline:
        work = Workbench(pipeline, Broker(node.bootstrap))
        name = work.source(f"FORMAT TEXT WITH ({options})", "a:1")
        view = work.view(f"SELECT * FROM {name}")
        assert work.rows(f"SELECT * FROM {view}") == [("1",)]

        node.kill()
        with pytest.raises((ClientError, NotCaughtUp)):
            work.rows(f"SELECT * FROM {view}")
        wait_for(lambda: pipeline.progress()[0].state == "waiting")
        (found,) = pipeline.progress()
        assert found.lag is None
        assert found.error
        node.start()
        work.send(name, "a:2")

        assert work.rows(f"SELECT * FROM {view}") == [("1",), ("2",)]
        assert pipeline.progress()[0].state == "running"
