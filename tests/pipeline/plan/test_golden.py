"""Statements and their plans, and what is wrong with those that have none."""

from pathlib import Path

from tests.pipeline.golden import check_golden
from tests.pipeline.plan.describe import plan_text

GOLDEN = Path(__file__).parent / "golden"


def test_columns() -> None:
    """I2, I3, I4, I6, I10, I16: which columns a source has, in which order, of which types."""
    check_golden(GOLDEN / "columns.txt", plan_text)


def test_clashes() -> None:
    """I5: a clash names the column, points at the item and suggests AS."""
    check_golden(GOLDEN / "clashes.txt", plan_text)


def test_envelopes() -> None:
    """I7, I8, I15, I16: every envelope with and without metadata, keys and errors."""
    check_golden(GOLDEN / "envelopes.txt", plan_text)


def test_places_and_starts() -> None:
    """I14: topics, patterns, offsets and times; every option."""
    check_golden(GOLDEN / "places.txt", plan_text)


def test_mistakes_in_formats() -> None:
    """I10, I19: what can be wrong with a format."""
    check_golden(GOLDEN / "formats.txt", plan_text)
    assert not any("hunter2" in line for line in (GOLDEN / "formats.txt").read_text().split("\n")
                   if not line.startswith("CREATE"))
