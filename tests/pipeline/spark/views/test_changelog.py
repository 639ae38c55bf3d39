"""Views followed: every change once, also across a restart, new partitions and a slow view."""

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import quipu.pipeline
from tests.pipeline.spark.broker import Broker
from tests.pipeline.spark.following_thread import Follower
from tests.pipeline.spark.workbench import Workbench

KEYED = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY"
SETTINGS = {"quipu.buckets": "4"}


def test_what_did_not_change_is_not_told(work: Workbench) -> None:
    """I13: a version tells its own changes, whatever else is in the table's other buckets."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", *(f"{number}:p{number}" for number in range(8)))
    follower = Follower(work.pipeline, work.view(f"SELECT key, text FROM {name}"))
    assert follower.take(8) == [(1, (f"{number}", f"p{number}")) for number in range(8)]

    work.send(name, "0:ann")
    assert follower.take(2) == [(-1, ("0", "p0")), (1, ("0", "ann"))]
    work.send(name, "1:", "3:p3")
    assert follower.take(1) == [(-1, ("1", "p1"))]
    work.send(name, "8:p8")
    assert follower.take(1) == [(1, ("8", "p8"))]
    follower.close()


def test_columns_that_are_picked_are_told_under_their_names(work: Workbench) -> None:
    """I13: of a table by key and of one that only grows, in any order, also twice."""
    picked = "SELECT text AS a, key, text AS b FROM"
    for name in (work.source(f"{KEYED} ENVELOPE UPSERT", "k:1"), work.source(KEYED, "k:1")):
        follower = Follower(work.pipeline, work.view(f"{picked} {name}"))
        assert follower.take(1) == [(1, ("1", "k", "1"))]
        work.send(name, "l:2")
        assert follower.take(1) == [(1, ("2", "l", "2"))]
        follower.close()


def test_groups_are_told_as_they_are_shown(work: Workbench) -> None:
    """I13: sums and means of what is there; a group that is shown as before is not told."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT", "a:b1", "b:b4", "c:cx")
    number = "try_cast(substr(text, 2) AS int)"
    follower = Follower(work.pipeline, work.view(
        f"SELECT count(*) AS n, sum({number}) AS s, avg({number}) AS a FROM {name} "
        "GROUP BY left(text, 1)"))
    assert follower.take(2) == [(1, (1, None, None)), (1, (2, 5, 2.5))]

    work.send(name, "d:b4")
    assert follower.take(2) == [(-1, (2, 5, 2.5)), (1, (3, 9, 3.0))]
    work.send(name, "c:dx")  # another group, which looks the same
    work.send(name, "a:")
    net: Counter[tuple[object, ...]] = Counter()
    while {row: diff for row, diff in net.items() if diff} != {(3, 9, 3.0): -1, (2, 8, 4.0): 1}:
        for diff, row in follower.take(1):
            net[row] += diff
    follower.close()


def test_following_goes_on_after_a_restart_and_with_new_partitions(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I13, I14: a snapshot of where the view is, then changes; of partitions that came, too."""
    with quipu.pipeline.connect(spark, state=tmp_path, settings=SETTINGS) as pipeline:
        work = Workbench(pipeline, broker)
        people = work.source(f"{KEYED} ENVELOPE UPSERT", "a:ann", "b:bob", partitions=2)
        orders = work.source(KEYED, "a:tea")
        view = work.view(f"SELECT p.text AS name, o.text AS thing FROM {orders} o "
                         f"JOIN {people} p USING (key)")
        assert work.rows(f"SELECT * FROM {view}") == [("ann", "tea")]
    work.send(people, "a:", "c:carl")
    work.send(orders, "b:milk", "c:tea")
    with quipu.pipeline.connect(spark, state=tmp_path, settings=SETTINGS) as pipeline:
        work.pipeline = pipeline
        follower = Follower(pipeline, view)
        assert follower.take(2) == [(1, ("bob", "milk")), (1, ("carl", "tea"))]

        broker.grow(work.topics[people], 3)
        broker.grow(work.topics[orders], 2)
        work.send(people, "d:dora", partition=2)
        work.send(orders, "d:rice", "b:salt", partition=1)
        work.send(people, "c:")
        assert follower.take(3) == [
            (-1, ("carl", "tea")), (1, ("bob", "salt")), (1, ("dora", "rice"))]
        assert work.rows(f"SELECT * FROM {view}") == [
            ("bob", "milk"), ("bob", "salt"), ("dora", "rice")]
        follower.close()


def test_a_view_that_is_behind_can_be_followed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """I13: what it has not seen yet comes as changes."""
    settings = {"quipu.wait.ms": "1", "quipu.batch.offsets.max": "2", "quipu.trigger.ms": "500"}
    with quipu.pipeline.connect(spark, state=tmp_path, settings=settings) as pipeline:
        work = Workbench(pipeline, broker)
        name = work.source("FORMAT TEXT", *(f":{number}" for number in range(6)))
        follower = Follower(pipeline, work.view(f"SELECT text FROM {name}"))

        assert follower.take(6) == [(1, (str(number),)) for number in range(6)]
        follower.close()
