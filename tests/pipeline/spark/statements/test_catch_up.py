"""SELECT waits for a view as long as the view gets on."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quipu.model.ids import TopicPartition
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.spark.statements import catch_up
from quipu.pipeline.spark.statements.catch_up import Cancelled, NotCaughtUp, WaitControl
from quipu.pipeline.spark.statements.pipeline import connect
from tests.pipeline.spark.broker import Broker

PART = TopicPartition("t", 0)


class FakeView:
    """A view whose versions and jobs go by the clock of the test."""

    def __init__(self, versions_at: list[float], jobs_at: list[float]) -> None:
        self.begun = time.monotonic()
        self.versions_at, self.jobs_at = versions_at, jobs_at
        self.files = self

    def count(self, times: list[float]) -> int:
        return sum(time.monotonic() - self.begun >= each for each in times)

    def latest(self) -> Any:
        number = self.count(self.versions_at)
        return SimpleNamespace(number=number, positions=(Reached({PART: number}, {}),))

    def has_seen(self, wanted: Any) -> bool:
        return bool(self.count(self.versions_at) >= wanted[0].positions[PART])


def wait_for(view: FakeView, monkeypatch: pytest.MonkeyPatch, *, error: str | None = None,
             told: list[str] | None = None, stopping: threading.Event | None = None) -> float:
    monkeypatch.setattr(catch_up, "JOBS_SECONDS", 0.02)
    monkeypatch.setattr(catch_up, "_work_done", lambda view: catch_up._WorkDone(
        view.files.latest().number, view.count(view.jobs_at), 0))
    live: Any = SimpleNamespace(settings=SimpleNamespace(wait_ms=40))
    supervisor = SimpleNamespace(name="v", error=error)
    maintained: Any = SimpleNamespace(view=view, supervisor=supervisor)
    waiter = WaitControl(stopping or threading.Event(), [].append if told is None else told.append)
    begun = time.monotonic()
    catch_up._wait(live, maintained, waiter, [Reached({PART: len(view.versions_at) or 1}, {})])
    return time.monotonic() - begun


def test_a_view_that_gets_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13: far longer than one step may take, as long as versions come; it is told how far."""
    told: list[str] = []
    steps = [0.2 * number for number in range(1, 9)]
    assert wait_for(FakeView(steps, []), monkeypatch, told=told) >= 1.5
    assert "view v has 8 messages to go" in told
    assert "view v has 1 messages to go" in told


def test_jobs_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13: one batch that takes long."""
    assert wait_for(FakeView([1.5], [0.2 * each for each in range(1, 7)]), monkeypatch) >= 1.4


def test_a_view_that_does_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13, K8: after a while, with the reason; one that fails again and again, sooner."""
    with pytest.raises(NotCaughtUp, match=r"did nothing for 400 ms \(see quipu.wait.ms\)$"):
        wait_for(FakeView([], []), monkeypatch)
    with pytest.raises(NotCaughtUp, match=r"40 ms .*: the disk is full"):
        wait_for(FakeView([], []), monkeypatch, error="the disk is full")


def test_whoever_stops_waiting_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13: what Ctrl-C does."""
    stopping = threading.Event()
    threading.Timer(0.1, stopping.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        wait_for(FakeView([30.0], []), monkeypatch, stopping=stopping)
    assert time.monotonic() - begun < 5


def test_a_select_on_a_view_under_load_waits(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I13: the view needs many times quipu.wait.ms, in small steps; SELECT sees all of it."""
    topic = broker.topic()
    settings = {"quipu.wait.ms": "1000", "quipu.batch.offsets.max": "2",
                "quipu.trigger.ms": "1500"}
    told: list[str] = []
    with connect(spark, state=tmp_path / "state", settings=settings) as pipeline:
        pipeline.execute(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' "
                         f"TOPIC '{topic}' FORMAT TEXT")
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
        broker.send(topic, ":x", ":y")
        assert pipeline.catch_up(120)  # the stream has started, however busy the machine is
        broker.send(topic, *(f":{number}" for number in range(22)))
        begun = time.monotonic()
        found: Any = pipeline.execute("SELECT n FROM v", waiting=WaitControl(report=told.append))
        assert [tuple(row) for row in found.collect()] == [(24,)]
        assert time.monotonic() - begun > 10
        done = catch_up._work_done(pipeline._live.maintained["v"].view)
        assert done.jobs > 0  # the stream's jobs are found
        assert done.tasks > 0
    assert any(line.startswith("view v has ") for line in told)
    assert told[-1] == ""
