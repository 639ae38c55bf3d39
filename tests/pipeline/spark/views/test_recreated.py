"""Topics that are deleted and created anew under a source: materialized views, and SELECT."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quipu.client.errors import TopicRecreated
from quipu.pipeline.spark.statements.catch_up import NotCaughtUp
from quipu.pipeline.spark.statements.pipeline import Pipeline, connect
from tests.harness.progress import wait_for
from tests.pipeline.spark.broker import Broker, Record
from tests.pipeline.spark.workbench import catch_up

KEYED = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY ENVELOPE UPSERT"


def current(pipeline: Pipeline, query: str) -> list[tuple[object, ...]]:
    """The rows of a query, once everything has what there is."""
    catch_up(pipeline)
    return rows(pipeline, query)


def rows(pipeline: Pipeline, query: str) -> list[tuple[object, ...]]:
    found: Any = pipeline.execute(query)
    return sorted(map(tuple, found.collect()), key=repr)


def error_of(pipeline: Pipeline) -> str:
    return " ".join(each.error or "" for each in pipeline.progress())


def recreate(broker: Broker, topic: str, *messages: str, partitions: int = 1) -> None:
    broker.delete(topic)
    broker.topic(name=topic, partitions=partitions)
    broker.send(topic, *messages)


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Callable[[str], Pipeline]:
    settings = {"quipu.wait.ms": "4000"}
    return lambda name: connect(spark, state=tmp_path / name, settings=settings)


def test_a_view_stops_and_says_so_while_it_runs_and_after_a_restart(
    broker: Broker, opened: Callable[[str], Pipeline], tmp_path: Path
) -> None:
    """I13, I15: the new topic is longer than the old one was; nothing of it is mixed in.

    What to do is in the error: the view is dropped and created again.
    """
    topic = broker.topic(name="recreated-view", partitions=2)
    broker.send(topic, "a:1", "b:2")
    broker.send(topic, "c:3", partition=1)
    create = "CREATE MATERIALIZED VIEW v AS SELECT key, text FROM s"
    with opened("run") as pipeline:
        pipeline.execute(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' "
                         f"TOPIC '{topic}' {KEYED}")
        pipeline.execute(create)
        assert current(pipeline, "SELECT * FROM v") == [("a", "1"), ("b", "2"), ("c", "3")]
        shutil.copytree(tmp_path / "run", tmp_path / "down")  # as if it was down meanwhile
        recreate(broker, topic, *(f"x{number}:new" for number in range(9)))
        wait_for(lambda: "created anew" in error_of(pipeline))
        with pytest.raises(NotCaughtUp, match=r"created anew .* DROP what reads it and create it"):
            rows(pipeline, "SELECT * FROM v")
    for name in ("run", "down"):
        with opened(name) as pipeline:
            wait_for(lambda: "created anew" in error_of(pipeline))
            with pytest.raises(NotCaughtUp, match="created anew"):
                rows(pipeline, "SELECT * FROM v")
    with opened("down") as pipeline:
        pipeline.execute("DROP VIEW v")
        pipeline.execute(create)
        assert current(pipeline, "SELECT * FROM v") == [(f"x{each}", "new") for each in range(9)]


def test_a_view_goes_on_with_the_new_topic_if_its_source_says_so(
    broker: Broker, opened: Callable[[str], Pipeline]
) -> None:
    """I13, I15: from the first record of the new one, each record once; also after a restart."""
    topic = broker.topic(name="recreated-lax")
    broker.send(topic, ":1", ":2", ":3")
    with opened("lax") as pipeline:
        pipeline.execute(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' "
                         f"TOPIC '{topic}' FORMAT TEXT WITH (ON TOPIC RECREATED = 'earliest')")
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT text FROM s")
        assert len(current(pipeline, "SELECT * FROM v")) == 3
        recreate(broker, topic, *(f":n{number}" for number in range(7)), partitions=2)
        wait_for(lambda: pipeline.progress()[0].messages == 10)
        wanted = [("1",), ("2",), ("3",), *((f"n{each}",) for each in range(7))]
        assert current(pipeline, "SELECT * FROM v") == wanted
    recreate(broker, topic, *(f":m{number}" for number in range(20)))
    with opened("lax") as pipeline:
        wait_for(lambda: pipeline.progress()[0].messages == 30)
        assert len(current(pipeline, "SELECT * FROM v")) == 30
        assert rows(pipeline, "SELECT count(*) FROM s") == [(20,)]


STARTS = [pytest.param("START OFFSET = (2)", id="offset"),
          pytest.param("START TIMESTAMP = 3000", id="timestamp")]


def begin_late(broker: Broker, topic: str, start: str, *more: str) -> str:
    """A statement for a source that leaves out the first two of a topic's four records."""
    broker.records(topic, [Record(None, b"%d" % number, timestamp=number * 1000)
                           for number in range(1, 5)])
    options = ", ".join((start, *more))
    return (f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' TOPIC '{topic}' "
            f"FORMAT TEXT WITH ({options})")


@pytest.mark.parametrize("start", STARTS)
def test_a_start_is_of_the_topic_that_there_was_when_the_source_was_created(
    broker: Broker, opened: Callable[[str], Pipeline], start: str
) -> None:
    """I14, I15: created anew before anything was read, or before a restart: nothing of the new
    topic is left out in silence.
    """
    topic = broker.topic()
    with opened("strict") as pipeline:
        pipeline.execute(begin_late(broker, topic, start))
        assert rows(pipeline, "SELECT text FROM s") == [("3",), ("4",)]
        recreate(broker, topic, *(f":n{number}" for number in range(5)))
        with pytest.raises(TopicRecreated, match="itself if it has START OFFSET or START TIMEST"):
            rows(pipeline, "SELECT * FROM s")
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
        wait_for(lambda: "created anew" in error_of(pipeline))
        with pytest.raises(NotCaughtUp, match="created anew"):
            rows(pipeline, "SELECT * FROM v")
    with opened("strict") as pipeline:
        with pytest.raises(TopicRecreated):
            rows(pipeline, "SELECT * FROM s")
        pipeline.execute("DROP SOURCE s CASCADE")
        pipeline.execute(f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' "
                         f"TOPIC '{topic}' FORMAT TEXT WITH (START OFFSET = 4)")
        assert rows(pipeline, "SELECT text FROM s") == [("n4",)]


@pytest.mark.parametrize("start", STARTS)
def test_a_start_gives_way_to_a_new_topic_if_the_source_says_so(
    broker: Broker, opened: Callable[[str], Pipeline], start: str
) -> None:
    """I14, I15: all of the new topic, before and after a restart, by SELECT and in a view."""
    topic = broker.topic(partitions=2)
    wanted = [(f"n{number}",) for number in range(5)]
    with opened("lax") as pipeline:
        pipeline.execute(begin_late(broker, topic, start, "ON TOPIC RECREATED = 'earliest'"))
        assert rows(pipeline, "SELECT text FROM s") == [("3",), ("4",)]
        recreate(broker, topic, *(f":n{number}" for number in range(5)))  # with one partition less
        assert rows(pipeline, "SELECT text FROM s") == wanted
    with opened("lax") as pipeline:
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT text FROM s")
        assert current(pipeline, "SELECT * FROM v") == wanted
        assert rows(pipeline, "SELECT text FROM s") == wanted


def test_a_start_in_a_catalog_without_ids_goes_on(
    broker: Broker, opened: Callable[[str], Pipeline], tmp_path: Path
) -> None:
    """I14, I13: as Quipu 0.3 wrote it."""
    topic = broker.topic()
    with opened("old") as pipeline:
        pipeline.execute(begin_late(broker, topic, "START OFFSET = 3"))
    path = tmp_path / "old" / "catalog.json"
    catalog = json.loads(path.read_text())
    del catalog["entries"][0]["facts"]["topic_ids"]
    path.write_text(json.dumps(catalog))
    with opened("old") as pipeline:
        assert rows(pipeline, "SELECT text FROM s") == [("4",)]
