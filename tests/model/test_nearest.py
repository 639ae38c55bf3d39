"""Finding the name nearest to a misspelt one."""

import pytest

from quipu.model.nearest import nearest


@pytest.mark.parametrize(("word", "expected"), [
    ("ordres", "Orders"), ("ORDERS", "Orders"), ("customer", "customers"), ("x", None), ("", None),
])
def test_the_most_alike_is_found_whatever_its_case(word: str, expected: str | None) -> None:
    assert nearest(word, ["Orders", "customers"]) == expected


def test_a_word_without_end_costs_little() -> None:
    """Names come from outside: only their beginning is compared."""
    assert nearest("ab" * 500_000, ["abab" * 25]) == "abab" * 25
