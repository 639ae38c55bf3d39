"""Work that is kept going, and what is seen of its failures."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import quipu.pipeline
from quipu.client.errors import ClientError
from quipu.pipeline.spark import running
from quipu.pipeline.spark.running import Keeper, State, wait_until
from quipu.pipeline.spark.waiting import NotCaughtUp
from tests.harness.node import RunningNode
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.workbench import Workbench

SECONDS_MAX = 60.0


def test_what_fails_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """I11, I20: the last error is there to be seen, until the work gets on."""
    monkeypatch.setattr(running, "PAUSE_SECONDS_MIN", 0.01)
    attempts = []
    go_on = threading.Event()

    def work(stop: threading.Event) -> None:
        attempts.append(1)
        if len(attempts) <= 3:
            raise OSError(f"attempt {len(attempts)}")
        go_on.wait(SECONDS_MAX)
        keeper.succeeded()
        stop.wait(SECONDS_MAX)

    keeper = Keeper("it", work)
    assert keeper.state is State.STOPPED
    keeper.start()

    assert wait_until(lambda: len(attempts) == 4, SECONDS_MAX)
    assert (keeper.state, keeper.error, keeper.restarts) == (State.WAITING, "attempt 3", 3)
    go_on.set()
    assert wait_until(lambda: keeper.state is State.RUNNING, SECONDS_MAX)
    assert keeper.error is None
    keeper.stop()
    assert keeper.state is State.STOPPED


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
        assert wait_until(lambda: pipeline.progress()[0].state == "waiting", SECONDS_MAX)
        (found,) = pipeline.progress()
        assert found.lag is None
        assert found.error
        node.start()
        work.send(name, "a:2")

        assert work.rows(f"SELECT * FROM {view}") == [("1",), ("2",)]
        assert pipeline.progress()[0].state == "running"
