"""Sources and views from end to end: a real node, a real Spark, statements in between."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import quipu.pipeline
from quipu.pipeline.command_result import CommandResult
from quipu.pipeline.spark.statements.pipeline import Pipeline
from tests.pipeline.spark.broker import Broker


def rows(pipeline: Pipeline, query: str) -> list[tuple[object, ...]]:
    frame = pipeline.execute(query)
    assert isinstance(frame, DataFrame)
    return sorted(map(tuple, frame.collect()))


def answer(pipeline: Pipeline, statement: str) -> CommandResult:
    found = pipeline.execute(statement)
    assert isinstance(found, CommandResult)
    return found


def create_source(pipeline: Pipeline, broker: Broker, topic: str, rest: str) -> None:
    answer(pipeline, f"CREATE SOURCE s FROM KAFKA BROKER '{broker.bootstrap}' "
                     f"TOPIC '{topic}' {rest}")


UPSERT = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY, OFFSET ENVELOPE UPSERT"


def test_a_view_is_kept_up_to_date_and_survives_a_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I7, I11, I13: the latest row of each key with its metadata, before and after a restart."""
    topic = broker.topic(partitions=2)
    broker.send(topic, "a:1", "b:2", "a:3")
    with quipu.pipeline.connect(spark, state=tmp_path) as pipeline:
        create_source(pipeline, broker, topic, UPSERT)
        assert rows(pipeline, "SELECT * FROM s") == [("a", "3", 2), ("b", "2", 1)]
        answer(pipeline, "CREATE MATERIALIZED VIEW v AS SELECT key, text, offset FROM s")
        answer(pipeline, "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM s")
        assert rows(pipeline, "SELECT * FROM v") == [("a", "3", 2), ("b", "2", 1)]
        assert rows(pipeline, "SELECT * FROM n") == [(2,)]
        broker.send(topic, "b:", "c:9")
        assert rows(pipeline, "SELECT * FROM v") == [("a", "3", 2), ("c", "9", 4)]

    broker.send(topic, "d:4", partition=1)
    with quipu.pipeline.connect(spark, state=tmp_path) as pipeline:
        assert rows(pipeline, "SELECT * FROM v") == [("a", "3", 2), ("c", "9", 4), ("d", "4", 0)]
        assert rows(pipeline, "SELECT * FROM n") == [(3,)]
