"""Which relations a query reads, what depends on what."""

from typing import NamedTuple

import pytest

from quipu.pipeline.plan.views import dropped, refuse_cycle, relations, used
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import Name


class Case(NamedTuple):
    why: str
    query: str
    want: tuple[str, ...]


CASES = [
    Case("one", "SELECT * FROM a", ("a",)),
    Case("none", "SELECT 1", ()),
    Case("joins", "SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN c USING (x, y)", ("a", "b", "c")),
    Case("commas", "SELECT p, q FROM a x, b AS y, c WHERE p IN (1, 2)", ("a", "b", "c")),
    Case("a comma after a condition", "SELECT * FROM a JOIN b ON f(a.x, b.x), c", ("a", "b", "c")),
    Case("subqueries", "SELECT (SELECT max(x) FROM a) FROM (SELECT * FROM b) WHERE x IN "
         "(SELECT y, z FROM c)", ("a", "b", "c")),
    Case("parentheses around joins", "SELECT * FROM ((a JOIN b ON true), c)", ("a", "b", "c")),
    Case("unions", "(SELECT x FROM a) UNION ALL SELECT y FROM b ORDER BY 1, 2", ("a", "b")),
    Case("WITH", "WITH c AS (SELECT * FROM a), d (x) AS (SELECT * FROM c, b) SELECT * FROM d",
         ("a", "b")),
    Case("a WITH that hides what it reads", "WITH a AS (SELECT * FROM a) SELECT * FROM a", ("a",)),
    Case("each once", "SELECT * FROM a UNION SELECT * FROM a", ("a",)),
    Case("backticks", "SELECT * FROM `A b`", ("A b",)),
    Case("functions are no relations", "SELECT * FROM range(3), explode(x), a", ("a",)),
    Case("nor are parts of calls", "SELECT extract(day FROM x), trim(BOTH 'y' FROM z) FROM a",
         ("a",)),
    Case("nor what is distinct from", "SELECT * FROM a WHERE x IS NOT DISTINCT FROM y", ("a",)),
    Case("nor other catalogs", "SELECT * FROM parquet.`x`, a", ("a",)),
    Case("nor strings and comments", "SELECT 'FROM b', \"FROM c\" -- FROM d\n FROM a", ("a",)),
    Case("LATERAL VIEW names columns", "SELECT * FROM a LATERAL VIEW explode(m) t AS k, v", ("a",)),
    Case("FROM first", "FROM a JOIN b SELECT x, y", ("a", "b")),
    Case("broken", "SELECT * FROM (a, (b", ("a", "b")),
    Case("empty", "  ", ()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_relations_of_a_query(case: Case) -> None:
    """I13: views know what they read."""
    assert relations(case.query) == case.want


def test_our_objects_are_found_whatever_their_case() -> None:
    assert used("SELECT * FROM ORDERS, elsewhere, Orders", ["orders", "totals"]) == ("orders",)


GRAPH = {"s": (), "v": ("s",), "w": ("v", "s"), "sink": ("w",), "other": ()}


def test_a_view_does_not_read_itself() -> None:
    refuse_cycle(Name("new"), ["w"], GRAPH)
    with pytest.raises(SqlError, match="v would read itself: v reads w reads v"):
        refuse_cycle(Name("v"), ["w"], GRAPH)
    with pytest.raises(SqlError, match="x would read itself: x reads x"):
        refuse_cycle(Name("x"), ["x"], GRAPH)


def test_what_is_needed_is_not_dropped() -> None:
    """I13: unless CASCADE says so; then users go first."""
    assert dropped(Name("other"), GRAPH, cascade=False) == ("other",)
    assert dropped(Name("s"), GRAPH, cascade=True) == ("sink", "w", "v", "s")
    with pytest.raises(SqlError, match="s is needed by sink, v, w"):
        dropped(Name("s"), GRAPH, cascade=False)
