"""Views followed: every change once, nothing else, also across a restart and new partitions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import quipu.pipeline
from quipu.pipeline.spark.pipeline import Pipeline
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.following import Follower, answer, rows

SETTINGS = {"quipu.buckets": "4"}  # several, so that most changes leave most buckets alone


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[Pipeline]:
    with quipu.pipeline.connect(spark, state=tmp_path, settings=SETTINGS) as connected:
        yield connected


def people_and_orders(pipeline: Pipeline, broker: Broker) -> tuple[str, str]:
    """Two sources, a view that is its source's table, and one that is a join."""
    people, orders = broker.topic(partitions=2), broker.topic()
    at = f"FROM KAFKA BROKER '{broker.bootstrap}'"
    answer(pipeline, f"CREATE SOURCE people {at} TOPIC '{people}' "
                     "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY AS id ENVELOPE UPSERT")
    answer(pipeline, f"CREATE SOURCE orders {at} TOPIC '{orders}' "
                     "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY AS person, OFFSET")
    answer(pipeline, "CREATE MATERIALIZED VIEW names AS "
                     "SELECT id, upper(text) AS name FROM people WHERE text <> 'nobody'")
    answer(pipeline, "CREATE MATERIALIZED VIEW bought AS SELECT p.text AS name, o.text AS thing "
                     "FROM orders o JOIN people p ON o.person = p.id")
    return people, orders


def test_updates_and_deletions_are_told_once(pipeline: Pipeline, broker: Broker) -> None:
    """I13: what changed in a version is told with that version, and what did not is not."""
    people, orders = people_and_orders(pipeline, broker)
    broker.send(people, *(f"{number}:p{number}" for number in range(8)))
    broker.send(orders, "0:tea", "0:tea", "1:milk", "9:air")
    names, bought = Follower(pipeline, "names"), Follower(pipeline, "bought")

    assert names.take(8) == [(1, (f"{number}", f"P{number}")) for number in range(8)]
    assert bought.take(3) == [(1, ("p0", "tea")), (1, ("p0", "tea")), (1, ("p1", "milk"))]

    broker.send(people, "0:ann")
    assert names.take(2) == [(-1, ("0", "P0")), (1, ("0", "ANN"))]
    assert bought.take(4) == [(-1, ("p0", "tea"))] * 2 + [(1, ("ann", "tea"))] * 2

    broker.send(people, "1:", "2:nobody", "3:p3")
    assert names.take(2) == [(-1, ("1", "P1")), (-1, ("2", "P2"))]
    assert bought.take(1) == [(-1, ("p1", "milk"))]

    broker.send(orders, "4:egg")
    assert bought.take(1) == [(1, ("p4", "egg"))]
    late = Follower(pipeline, "bought", snapshot=False)
    broker.send(orders, "5:egg")
    assert bought.take(1) == late.take(1) == [(1, ("p5", "egg"))]
    for follower in (names, bought, late):
        follower.close()
        assert follower.changes == []


def test_a_subscription_goes_on_after_a_restart_and_with_new_partitions(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I13, I14: a snapshot of where the view is, then changes; of partitions that came, too."""
    with quipu.pipeline.connect(spark, state=tmp_path, settings=SETTINGS) as pipeline:
        people, orders = people_and_orders(pipeline, broker)
        broker.send(people, "a:ann", "b:bob")
        broker.send(orders, "a:tea")
        assert rows(pipeline, "SELECT * FROM bought") == [("ann", "tea")]
    broker.send(people, "a:", "c:carl")
    broker.send(orders, "b:milk", "c:tea")
    with quipu.pipeline.connect(spark, state=tmp_path, settings=SETTINGS) as pipeline:
        bought = Follower(pipeline, "bought")
        assert bought.take(2) == [(1, ("bob", "milk")), (1, ("carl", "tea"))]

        broker.grow(people, 3)
        broker.grow(orders, 2)
        broker.send(people, "d:dora", partition=2)
        broker.send(orders, "d:rice", "b:salt", partition=1)
        broker.send(people, "c:")

        assert bought.take(3) == [
            (-1, ("carl", "tea")), (1, ("bob", "salt")), (1, ("dora", "rice"))]
        assert rows(pipeline, "SELECT * FROM bought") == [
            ("bob", "milk"), ("bob", "salt"), ("dora", "rice")]
        bought.close()
