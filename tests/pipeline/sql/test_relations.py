"""Which relations a query reads; tests/pipeline/spark holds the same queries to Spark's parser."""

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.relations import DEPTH_MAX, relations
from tests.pipeline.sql.queries import CASES, NAMES, Case, made_query


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_relations_of_a_query(case: Case) -> None:
    """I13: views know what they read."""
    assert relations(case.query) == case.want


def test_a_definition_reaches_as_far_as_its_query() -> None:
    """pipeline.N1, and I13: a name in WITH hides a source there, and nowhere else."""
    assert relations("SELECT * FROM (WITH a AS (SELECT * FROM b) SELECT * FROM a) s JOIN a") == (
        "b", "a")
    assert relations("WITH a AS (SELECT * FROM b) SELECT * FROM a UNION ALL TABLE a") == ("b",)
    assert relations("WITH a AS (SELECT * FROM a), c AS (SELECT * FROM a) TABLE c") == ("a",)
    assert relations("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) TABLE a") == ()


@pytest.mark.parametrize("query", ["", "  ", "SELECT", "FROM", "WITH", "WITH a", "WITH a AS (",
                                   "((", "))", "SELECT * FROM", "TABLE", "SELECT 'x", "FROM a |>",
                                   "a.", "FROM a.", "FROM f(TABLE(", "FROM IDENTIFIER(", "VALUES"])
def test_nothing_is_found_in_what_is_no_query(query: str) -> None:
    assert set(relations(query)) <= {"a"}


def test_what_a_broken_query_names_is_found() -> None:
    assert relations("SELECT * FROM (a, (b") == ("a", "b")


WORDS = ("SELECT", "FROM", "WITH", "AS", "TABLE", "VALUES", "JOIN", "UNION", "LATERAL", "VIEW",
         "(", "(", ")", ",", ".", "|>", "a", "`b`", "'c'", '"d"', "1", "IDENTIFIER", "STREAM", "--",
         "/*", "\n", "TRIM", "ON", "RECURSIVE", "WINDOW", "ORDER", "BY")


@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_text_is_read_to_its_end(words: list[str]) -> None:
    """Nothing but strings, symbols and numbers is left out of what may be a relation."""
    known = {word.strip("`") for word in WORDS}
    assert set(relations(" ".join(words))) <= known


def test_queries_that_are_made_up_read_names_of_theirs() -> None:
    for seed in range(200):
        found = relations(made_query(Random(seed)))
        assert {name.lower() for name in found} <= {name.strip("`") for name in NAMES}


def test_queries_nest_so_deep_and_no_deeper() -> None:
    """Expressions nest as deep as they like; queries in queries have a limit, and an error."""
    query = "SELECT * FROM (" * DEPTH_MAX + "SELECT * FROM a" + ")" * DEPTH_MAX
    assert relations(query) == ("a",)
    with pytest.raises(SqlError, match="nested more than 100 deep"):
        relations(f"SELECT * FROM ({query})")
    assert relations("SELECT " + "(" * 10_000 + "x" + ")" * 10_000 + " FROM a") == ("a",)


def test_time_grows_with_the_text() -> None:
    count = 20_000
    start = time.perf_counter()
    assert relations("SELECT " + "(" * count + "x") == ()
    assert len(relations("SELECT * FROM " + ", ".join(f"t{n}" for n in range(count)))) == count
    assert time.perf_counter() - start < 10
