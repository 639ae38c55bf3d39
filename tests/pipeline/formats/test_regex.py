"""REGEX: RE2 alone, with Python's engine as oracle where the two mean the same."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.regex import InvalidPattern, RegexFormat
from quipu.pipeline.formats.specs import Regex
from tests.pipeline.formats.decoding import decoded


def names(pattern: str) -> list[str]:
    return [column.name for column in make_format(Regex(pattern)).columns]


def test_groups_are_columns() -> None:
    """I10: named ones by their names, others by their numbers."""
    assert names(r"(?P<animal>[^,]+),(?P<food>\w+)") == ["animal", "food"]
    assert names(r"(a)(?:x)(?<b>b)\((c[(])") == ["column1", "b", "column3"]


@pytest.mark.parametrize(("pattern", "columns"), [
    (r"(?P<a>[(\])]+)(b)\(", ["a", "column2"]), (r"(?i)(a)|(?P<b>b)", ["column1", "b"]),
    (r"(?:x)(\w+) \[([^\]]*)\]", ["column1", "column2"]), (r"([]x])(?<n>y)", ["column1", "n"]),
    (r"[[:alpha:](]([^[:^digit:](])", ["column1"]), (r"\Q(\E(a)\Q(?P<x>", ["column1"]),
    (r"((?P<g1>a)(b))", ["column1", "g1", "column3"])])
def test_parentheses_that_are_no_groups_are_told_apart(pattern: str, columns: list[str]) -> None:
    r"""I10: in classes, behind \\, between \\Q and \\E."""
    assert names(pattern) == columns


def test_a_message_that_does_not_match_is_absent() -> None:
    """I10, I15: and one that is no text an error."""
    fmt = make_format(Regex(r"(?P<animal>[^,]+),(?P<food>[\w\pL]+)"))
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
    (r"(a{,2})b", b"aab", ("aa",)),
    (r"(\w+)$", b"word\n", None),
    (r"(\w+)\n?$", b"word\n", ("word",)),
    (r"(?m)(\w+)$", b"word\n", ("word",)),
    (r"(\d+)", "٣".encode(), None),
    (r"(\p{Nd}+)", "٣".encode(), ("٣",)),
    (r"(\pL+)", "übel!".encode(), ("übel",)),
    (r"(?i)(ÀBC)", "xàbc".encode(), ("àbc",)),
    (r"(?i)(ABC)", b"xabc", ("abc",)),
    (r"(.)", b"\n", None),
    (r"(.)", "€".encode(), ("€",)),
])
def test_the_meaning_is_that_of_re2(pattern: str, message: bytes, row: object) -> None:
    """I10: for ASCII and for all else."""
    assert decoded(RegexFormat(Regex(pattern)), [message, b"\xff"])[0] == row


@pytest.mark.parametrize(("pattern", "why"), [
    ("(", "missing"), ("a", "no group"), ("[[:nothing:]](x)", "character class"),
    ("(?P<a>x)(?P<a>y)", "two groups"), ("(a)**", "repetition"), ("(?P<1>x)", "no name"),
    (r"(a)\1", "no \\\\1"), ("(a)(?=b)", "linear"), ("(a)(?!b)", "linear"),
    ("(?<=b)(a)", "linear"), ("(?<!b)(a)", "linear"), (r"(\C)", "whole ones"),
    ("((?:x{900}){900})", "repetition"),
    pytest.param("(" * 5000 + "a" + ")" * 5000, "1000 groups", id="deep"),
    pytest.param("(a)" + "b" * 100_000, "characters", id="long")])
def test_a_pattern_that_cannot_serve_is_refused(pattern: str, why: str) -> None:
    """I19: when the source is made, not when it is read, and the error says why."""
    with pytest.raises(InvalidPattern, match=why):
        make_format(Regex(pattern))


@pytest.mark.parametrize("letter", ["a", "é", "٣", "\n"])
@pytest.mark.parametrize("pattern", [
    r"^((?:X+)+)$", r"^((?:X|X)*)$", r"((?:X*)*)!?$", r"^(?:(X*)*)*!$", r"(X?){25}X{25}$"])
def test_time_is_linear_whatever_the_message(pattern: str, letter: str) -> None:
    """K8: patterns on which an engine that goes back would run for years; in any letters."""
    fmt = RegexFormat(Regex(pattern.replace("X", letter)))

    def seconds(count: int) -> float:
        begun = time.perf_counter()
        decoded(fmt, [(letter * count + "?").encode()] * 20)
        return time.perf_counter() - begun

    seconds(10)
    short, long = min(seconds(500) for _ in range(3)), seconds(20_000)
    assert long < 0.5 + 40 * 20 * short  # 40 times as long


patterns = st.sampled_from([
    r"(\w+) (\d+)?", r"(a|b)*(c)?", r"(?P<x>[^ ]*)-(?P<y>.*)", r"^(a?)(b?)", r"(\S+)$",
    r"(a+?)(a*)", r"\b(\w)", r"((a)|(b))+", r"([ab]{2,3})(\W)"])


@given(patterns, st.lists(st.text(st.sampled_from("abc 12-_\né\t"), max_size=8), max_size=8))
@settings(max_examples=200, deadline=None)
def test_pythons_engine_finds_the_same(pattern: str, texts: list[str]) -> None:
    """I10: told that classes are ASCII, and that $ is the end."""
    found = decoded(RegexFormat(Regex(pattern)), [text.encode() for text in texts])
    matches = [re.search(pattern.replace("$", r"\Z"), text, re.ASCII) for text in texts]
    assert found == [None if match is None else match.groups() for match in matches]
