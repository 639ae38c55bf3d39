"""What a SELECT needs of its relations, found out by Spark's own planner."""

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from quipu.pipeline.spark.queries.analysis import (
    QueryAnalysis,
    QueryPlanner,
    analyzed,
    blank,
    spark_schema,
)

A = pa.schema([("id", pa.int64()), ("x", pa.string()), ("y", pa.string()), ("z", pa.string())])
B = pa.schema([("id", pa.int64()), ("u", pa.string()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture(scope="module")
def planner(spark: SparkSession) -> QueryPlanner:
    return QueryPlanner(spark.newSession())


def analysis(planner: QueryPlanner, select: str) -> QueryAnalysis:
    relations = {"a": A, "b": B}
    return analyzed(planner.frame(select, {
        name: blank(planner, name, spark_schema(schema)) for name, schema in relations.items()
    }))


NEEDED = [
    ("SELECT x FROM a WHERE y = '1'", {"a": "x y"}),
    ("SELECT * FROM b", {"b": "id u at"}),
    ("SELECT count(*) FROM a", {"a": ""}),
    ("SELECT a.x, b.u FROM a JOIN b ON a.id = b.id WHERE b.at > '2020-01-01'",
     {"a": "id x", "b": "id u at"}),
    ("SELECT x FROM a UNION ALL SELECT u FROM b", {"a": "x", "b": "u"}),
    ("SELECT id, u, at FROM b UNION ALL SELECT * FROM b", {"b": "id u at"}),
    ("SELECT x, (SELECT max(u) FROM b) FROM a WHERE id IN (SELECT id FROM b)",
     {"a": "id x", "b": "id u"}),
    ("SELECT p.x FROM a p JOIN a q ON p.id = q.id AND q.z = p.x", {"a": "id x z"}),
    ("SELECT id FROM a EXCEPT SELECT id FROM b", {"a": "id", "b": "id"}),
    ("SELECT x FROM a WHERE false", {"a": "x"}),
]


@pytest.mark.parametrize(("select", "needed"), NEEDED, ids=[case[0] for case in NEEDED])
def test_only_what_is_looked_at_is_needed(
    planner: QueryPlanner, select: str, needed: dict[str, str]
) -> None:
    """I4: a column that a SELECT does not look at costs nothing."""
    found = analysis(planner, select).needed
    wanted = {name: frozenset(columns.split()) for name, columns in needed.items()}
    if "false" in select:  # nothing is looked at; more would do no harm
        assert set(found) == set(wanted)
        assert found["a"] <= wanted["a"]
    else:
        assert found == wanted


LINEAR = [
    ("SELECT upper(x) FROM a WHERE y = '1'", True),
    ("SELECT x FROM a UNION ALL SELECT u FROM b", True),
    ("WITH t AS (SELECT * FROM a) SELECT x FROM t", True),
    ("SELECT explode(split(x, ',')) FROM a", True),
    ("SELECT x FROM a UNION ALL SELECT 'once'", False),
    ("SELECT x FROM a UNION SELECT u FROM b", False),
    ("SELECT DISTINCT x FROM a", False),
    ("SELECT x FROM a LIMIT 1", False),
    ("SELECT x FROM a WHERE id IN (SELECT id FROM b)", False),
    ("SELECT count(*) FROM a", False),
    ("SELECT x, row_number() OVER (ORDER BY y) FROM a", False),
    ("SELECT x, rand() FROM a", False),
    ("SELECT x, now() FROM a", False),
]


@pytest.mark.parametrize(("select", "linear"), LINEAR, ids=[case[0] for case in LINEAR])
def test_what_treats_every_row_on_its_own_is_linear(
    planner: QueryPlanner, select: str, linear: bool
) -> None:
    """I13: such a view is its source's table, read through the SELECT."""
    found = analysis(planner, select)

    assert found.is_linear is linear
    assert found.is_repeatable is not any(word in select for word in ("rand", "now"))


PICKS = [
    ("SELECT * FROM a", "id x y z"),
    ("SELECT y, x AS y2, y AS y3 FROM a", "y x y"),
    ("WITH t AS (SELECT x, y FROM a) SELECT y FROM (SELECT * FROM t)", "y"),
    ("SELECT x || '' AS x FROM a", None),
    ("SELECT x FROM a WHERE y = '1'", None),
    ("SELECT CAST(id AS string) AS id FROM a", None),
    ("SELECT x, 1 AS one FROM a", None),
    ("SELECT x FROM a UNION ALL SELECT u FROM b", None),
    ("SELECT x FROM a UNION ALL SELECT u FROM b WHERE false", None),
    ("SELECT DISTINCT x FROM a", None),
]


@pytest.mark.parametrize(("select", "picks"), PICKS, ids=[case[0] for case in PICKS])
def test_what_only_picks_columns_is_known(
    planner: QueryPlanner, select: str, picks: str | None,
) -> None:
    """I13: whoever follows such a view reads its source's table."""
    assert analysis(planner, select).picks == (None if picks is None else tuple(picks.split()))


def test_names_are_known_only_while_one_select_is_planned(planner: QueryPlanner) -> None:
    """I13: a dropped source is gone."""
    analysis(planner, "SELECT x FROM a")

    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        planner.frame("SELECT x FROM a", {})


PRODUCTS = [
    ("SELECT a.x, b.u FROM a JOIN b ON a.id = b.id WHERE b.at > '2020-01-01'", True),
    ("SELECT a.x FROM a, b WHERE a.id = b.id", True),
    ("SELECT upper(x) FROM a", True),
    ("SELECT p.x FROM a p JOIN a q ON p.id = q.id", False),
    ("SELECT a.x, b.u FROM a LEFT JOIN b ON a.id = b.id", False),
    ("SELECT x FROM a WHERE id IN (SELECT id FROM b)", False),
    ("SELECT a.x FROM a JOIN (SELECT id FROM b UNION ALL SELECT id FROM b) c ON a.id = c.id",
     False),
    ("SELECT DISTINCT a.x FROM a JOIN b ON a.id = b.id", False),
    ("SELECT a.x FROM a JOIN (SELECT 1 AS id) c ON a.id = c.id", False),
]


@pytest.mark.parametrize(("select", "product"), PRODUCTS, ids=[case[0] for case in PRODUCTS])
def test_what_only_joins_is_a_product(planner: QueryPlanner, select: str, product: bool) -> None:
    """I13: of such a view only the changes are computed."""
    assert analysis(planner, select).is_product is product
