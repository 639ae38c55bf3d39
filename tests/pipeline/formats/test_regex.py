"""REGEX: RE2 over whole arrays and Python's engine must tell the same."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.make import make_format
from quipu.pipeline.formats.regex import InvalidPattern, RegexFormat
from quipu.pipeline.formats.specs import Regex
from tests.pipeline.formats.decoding import decoded


def names(pattern: str) -> list[str]:
    return [column.name for column in make_format(Regex(pattern)).columns]


def test_groups_are_columns() -> None:
    """I10: named ones by their names, others by their numbers."""
    assert names(r"(?P<animal>[^,]+),(?P<food>\w+)") == ["animal", "food"]
    assert names(r"(a)(?:x)(?<b>b)\((c[(])") == ["column1", "b", "column3"]


@pytest.mark.parametrize("pattern", [
    r"(?P<a>[(\])]+)(b)\(", r"(?i)(a)|(?P<b>b)", r"(?:x)(\w+) \[([^\]]*)\]", r"([]x])(?<n>y)"])
def test_usual_patterns_are_for_both_engines(pattern: str) -> None:
    """I10: parentheses that are no groups are told apart when groups get names."""
    assert RegexFormat(Regex(pattern))._fast is not None


def test_a_message_that_does_not_match_is_absent() -> None:
    """I10, I15: and one that is no text an error."""
    fmt = make_format(Regex(r"(?P<animal>[^,]+),(?P<food>\w+)"))
    assert decoded(fmt, [b"horse,apple", b"no comma", None, b"\xff,x", "bìrd,séed".encode(),
                         b"cow,grass and more"]) == [
        ("horse", "apple"), None, None, "Failed to decode UTF-8", ("bìrd", "séed"),
        ("cow", "grass")]


def test_a_group_without_a_part_is_null_and_an_empty_one_is_empty() -> None:
    """I10: RE2 does not tell them apart; the format does."""
    fmt = make_format(Regex(r"^(?P<a>x*)(?P<b>y)?$"))
    assert decoded(fmt, [b"xx", b"y", b"", b"xy", b"z"]) == [
        ("xx", None), ("", "y"), ("", None), ("x", "y"), None]


@pytest.mark.parametrize(("pattern", "message", "row"), [
    (r"(a)(?=b)", b"ab", ("a",)),
    (r"(a)\1", b"xaa", ("a",)),
    (r"(a{,2})b", b"aab", ("aa",)),
    (r"(\w+)$", b"word\n", ("word",)),
    (r"(\s)", b"\x1c", ("\x1c",)),
    (r"(\d+)", "٣".encode(), ("٣",)),
    (r"(?i)(ABC)", b"xabc", ("abc",)),
    (r"(.)", b"\n", None),
])
def test_what_only_one_engine_knows_or_both_see_differently(
    pattern: str, message: bytes, row: object
) -> None:
    """I10: Python's meaning holds."""
    assert decoded(RegexFormat(Regex(pattern)), [message, b"\xff"])[0] == row


@pytest.mark.parametrize("pattern", ["(", "a", "[[:alpha:]](x)", "(?P<a>x)(?P<a>y)", "(a)**"])
def test_a_pattern_that_cannot_serve_is_refused(pattern: str) -> None:
    """I19: when the source is made, not when it is read."""
    with pytest.raises(InvalidPattern):
        make_format(Regex(pattern))


patterns = st.sampled_from([
    r"(\w+) (\d+)?", r"(a|b)*(c)?", r"(?P<x>[^ ]*)-(?P<y>.*)", r"^(a?)(b?)", r"(\S+)$",
    r"(a+?)(a*)", r"\b(\w)", r"((a)|(b))+", r"([ab]{2,3})(\W)"])


@given(patterns, st.lists(st.text(st.sampled_from("abc 12-_\né\t"), max_size=8), max_size=8))
@settings(max_examples=80, deadline=None)
def test_both_engines_find_the_same(pattern: str, texts: list[str]) -> None:
    """I10: Python's engine as oracle."""
    found = decoded(RegexFormat(Regex(pattern)), [text.encode() for text in texts])
    matches = [re.search(pattern, text) for text in texts]
    assert found == [None if match is None else match.groups() for match in matches]
