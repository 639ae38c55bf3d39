"""Aggregates that are kept by group: which ones, and that they add up."""

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from quipu.pipeline.spark.queries.analysis import QueryPlanner, analyzed_plan, spark_schema
from quipu.pipeline.spark.queries.scope import Scope, grouped_of
from tests.pipeline.spark.workbench import Workbench

A = pa.schema([("id", pa.int64()), ("x", pa.string()), ("d", pa.decimal128(10, 2)),
               ("f", pa.float64())])


@pytest.fixture(scope="module")
def scope(spark: SparkSession) -> Scope:
    schema = spark_schema(A)
    return Scope(QueryPlanner(spark.newSession()), {"a": schema, "b": schema}, {})


KEPT = [
    ("SELECT x, count(*) AS n, sum(id) AS s, sum(d), avg(id) FROM a GROUP BY x", True),
    ("SELECT count(f) AS n FROM a WHERE x IS DISTINCT FROM 'b'", True),
    ("SELECT upper(x) AS u, count(*) FROM a GROUP BY 1", True),
    ("SELECT a.x, sum(b.id) FROM a JOIN b ON a.id = b.id GROUP BY a.x", True),
    ("SELECT x, max(id) FROM a GROUP BY x", False),
    ("SELECT x, sum(f) FROM a GROUP BY x", False),
    ("SELECT x, avg(d) FROM a GROUP BY x", False),
    ("SELECT count(DISTINCT x) FROM a", False),
    ("SELECT count(*) FILTER (WHERE id > 1) FROM a", False),
    ("SELECT x, count(*) AS n FROM a GROUP BY x HAVING count(*) > 1", False),
    ("SELECT x, count(*) AS n FROM a GROUP BY x ORDER BY n LIMIT 1", False),
    ("SELECT x, id, count(*) FROM a GROUP BY ROLLUP (x, id)", False),
    ("SELECT x, count(*) + 1 FROM a GROUP BY x", False),
    ("SELECT a.x, count(*) FROM a LEFT JOIN b ON a.id = b.id GROUP BY a.x", False),
    ("WITH t AS (SELECT x FROM a) SELECT x, count(*) FROM t GROUP BY x", False),
]


@pytest.mark.parametrize(("query", "kept"), KEPT, ids=[case[0] for case in KEPT])
def test_what_adds_up_is_kept_by_group(scope: Scope, query: str, kept: bool) -> None:
    """I13: counts and exact sums follow changes; whatever is not sure is computed anew."""
    frame = scope.frame(query, scope.blank)

    assert (grouped_of(scope, query, analyzed_plan(frame), only_grows=False) is not None) is kept


def test_least_and_greatest_are_kept_where_nothing_is_taken_back(scope: Scope) -> None:
    """I13: rows that only come can only raise the greatest."""
    query = "SELECT x, min(id), max(f) FROM a GROUP BY x"
    plan = analyzed_plan(scope.frame(query, scope.blank))

    assert grouped_of(scope, query, plan, only_grows=True) is not None


QUERIES = """
SELECT left(text, 1) AS g, count(*) AS n, sum(try_cast(text AS int)) AS s,
  avg(try_cast(text AS int)) AS a FROM {u} GROUP BY 1;
SELECT count(*) AS n, sum(try_cast(text AS int)) AS s FROM {u} WHERE text <> '7';
SELECT key, max(text) AS m, count(*) AS n FROM {n} GROUP BY key;
SELECT u.text AS t, count(*) AS c, sum(CAST(n.offset AS decimal(10,2))) AS d
FROM {u} u JOIN {n} n USING (key) GROUP BY u.text
"""


@pytest.mark.slow
def test_groups_follow_changes(work: Workbench) -> None:
    """I9, I13: whatever comes and goes, a view has what its query gives."""
    keyed = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY, OFFSET"
    upserts = work.source(f"{keyed} ENVELOPE UPSERT")
    growing = work.source(keyed)
    queries = [query.strip() for query in QUERIES.format(u=upserts, n=growing).split(";")]
    views = [work.view(query) for query in queries]
    assert all(work.pipeline._live.maintained[view].view.plan.grouped for view in views)
    rng = random.Random(3)
    for _ in range(3):
        for name in (upserts, growing):
            values = ["1", "x", "7", "22", "3", *([""] * (name == upserts))]
            work.send(name, *(f"{rng.randrange(5)}:{rng.choice(values)}" for _ in range(6)))
        for view, query in zip(views, queries, strict=True):
            assert work.rows(f"SELECT * FROM {view}") == work.rows(query)
