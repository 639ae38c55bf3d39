"""Places in a topic as people write them."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.cli.positions import Position, parse_position, resolve

NOW_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


class Case(NamedTuple):
    why: str
    text: str
    want: Position


CASES = [
    Case("the first record kept", "beginning", Position(after_start=0)),
    Case("Kafka's word for it", "earliest", Position(after_start=0)),
    Case("case does not matter", "Latest", Position(before_end=0)),
    Case("a number is an offset", "417", Position(offset=417)),
    Case("the largest offset there can be", str(2**63), Position(offset=2**63 - 1)),
    Case("a negative one counts from the end", "-10", Position(before_end=10)),
    Case("a time in UTC", "2026-01-31T12:00:00Z", Position(timestamp_ms=NOW_MS)),
    Case("UTC if it does not say", "2026-01-31 12:00", Position(timestamp_ms=NOW_MS)),
    Case("with an offset", "2026-01-31T14:00:00+02:00", Position(timestamp_ms=NOW_MS)),
    Case("a day", "2026-01-31", Position(timestamp_ms=NOW_MS - 12 * 3_600_000)),
    Case("an age", "15m", Position(timestamp_ms=NOW_MS - 15 * 60_000)),
    Case("an age with a dash", "-2h", Position(timestamp_ms=NOW_MS - 2 * 3_600_000)),
    Case("older than 1970 is 1970", "99999d", Position(timestamp_ms=0)),
    Case("milliseconds", "@1769860800000", Position(timestamp_ms=NOW_MS)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_parse(case: Case) -> None:
    """K2: offsets and times in the forms that the help text promises."""
    assert parse_position(case.text, now_ms=NOW_MS) == case.want


@pytest.mark.parametrize("text", ["", "yesterday", "10x", "--5", "1969-01-01", "@-1", "٤", "+5"])
def test_nonsense_is_told_with_what_to_write(text: str) -> None:
    """K2: a typing mistake must not become an offset."""
    with pytest.raises(ValueError, match=r"no position in a topic; write beginning|before 1970"):
        parse_position(text, now_ms=NOW_MS)


@given(text=st.text(max_size=30))
def test_any_text_is_a_position_or_a_clear_error(text: str) -> None:
    """K2: nothing that can be typed ends in a traceback."""
    try:
        position = parse_position(text, now_ms=NOW_MS)
    except ValueError as error:
        assert str(error)  # noqa: PT017 either outcome is fine, silence is not
    else:
        assert 7 <= resolve(position, start=7, end=20, timed=9) <= 20


RESOLVED = [
    ("inside", Position(offset=15), -1, 15),
    ("before the first record kept", Position(offset=3), -1, 10),
    ("after the end", Position(offset=99), -1, 20),
    ("counted from the end", Position(before_end=4), -1, 16),
    ("more than there are", Position(before_end=400), -1, 10),
    ("the beginning", Position(after_start=0), -1, 10),
    ("by time", Position(timestamp_ms=5), 12, 12),
    ("later than every record", Position(timestamp_ms=5), -1, 20),
]


@pytest.mark.parametrize("case", RESOLVED, ids=lambda case: case[0])
def test_resolve_stays_within_what_the_partition_holds(
    case: tuple[str, Position, int, int],
) -> None:
    """K2: a position always means an offset from which a consumer can read."""
    _, position, timed, want = case
    assert resolve(position, start=10, end=20, timed=timed) == want
