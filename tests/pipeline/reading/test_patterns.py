"""Topics by a regular expression, in linear time where anybody may name them."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.reading.patterns import BadPattern, check_linear, matching

NAMES = ["a", "b", "ab", "a.b", "orders-1", "orders-22", "Orders"]


@pytest.mark.parametrize("pattern", [
    "a|b", "a.*", "orders-[0-9]+", r"orders-\d", "(?i)orders.*", ".*", "(a)(b)?", "", "^a$", "a|",
    "(?!a).*", r"(.)\1*", "(?=o)[a-z-]+1"])  # the last ones are no patterns of RE2's
def test_names_are_matched_as_a_whole(pattern: str) -> None:
    """I14: as Python's engine does."""
    assert matching(pattern)(NAMES) == [name for name in NAMES if re.fullmatch(pattern, name)]


@given(st.lists(st.text("ab.-_1", min_size=1, max_size=6), max_size=6))
def test_any_names(names: list[str]) -> None:
    """I14."""
    for pattern in ("(a|b)*", r"a.b|\w+", "[a-]{2,3}"):
        assert matching(pattern)(names) == [name for name in names if re.fullmatch(pattern, name)]


def test_no_name_makes_a_pattern_run_for_years() -> None:
    """K8: names of 249 letters, by whoever creates topics."""
    names = ["a" * 200 + str(number) for number in range(1000)]
    begun = time.perf_counter()
    for pattern in ("(a+)+b", "(a|a)*b", "(a*)*b", "(a?){200}a{200}"):
        assert matching(pattern)(names) == []
    assert time.perf_counter() - begun < 30


@pytest.mark.parametrize("pattern", ["(", "a)", "a)|(b", "[", "(?!a).*", r"(a)\1", "(?<=a)b",
                                     "((x{900}){900}){900}"])
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    """K8, I19."""
    with pytest.raises(BadPattern):
        check_linear(pattern)
