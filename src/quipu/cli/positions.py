"""Positions in a topic as users write them, and the offsets that they mean.

beginning, earliest      the first record kept
end, latest              after the last record
417                      this offset
-10                      ten records before the end of each partition
2026-01-31T12:00:00Z     the first record at or after a time; UTC unless it says otherwise
15m, 2h, 7d              the first record that is at most this old
@1769860800000           milliseconds since 1970
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

HELP: Final = (
    "beginning, end, OFFSET, -N (before the end), a time (2026-01-31T12:00Z), or an age (15m)"
)
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGE: Final = re.compile(r"-?(\d{1,9})([smhd])")
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in every partition of a topic; exactly one of the fields is set."""

    offset: int | None = None  # this offset
    before_end: int | None = None  # this many records before the end; 0: the end
    after_start: int | None = None  # this many records after the first one kept
    timestamp_ms: int | None = None  # the first record at or after this time

    def __post_init__(self) -> None:
        given = (self.offset, self.before_end, self.after_start, self.timestamp_ms)
        assert sum(value is not None for value in given) == 1, given


def parse_position(text: str, *, now_ms: int) -> Position:
    """The position that `text` means; raises ValueError that lists the possible forms."""
    match text.strip().lower():
        case "beginning" | "earliest":
            return Position(after_start=0)
        case "end" | "latest":
            return Position(before_end=0)
        case word if word.isascii() and word.isdigit() and len(word) < 20:
            return Position(offset=min(int(word), _OFFSET_MAX))
        case word if re.fullmatch(r"-\d{1,18}", word, re.ASCII):
            return Position(before_end=-int(word))
        case word if re.fullmatch(r"@\d{1,15}", word, re.ASCII):
            return Position(timestamp_ms=int(word[1:]))
        case word if (age := _AGE.fullmatch(word)) is not None:
            return Position(timestamp_ms=max(now_ms - int(age[1]) * _UNIT_MS[age[2]], 0))
    return Position(timestamp_ms=_parse_time(text.strip()))


def resolve(position: Position, *, start: int, end: int, timed: int = -1) -> int:
    """The offset of `position` in one partition that holds [start, end).

    `timed` is the first offset at or after the position's timestamp; negative if there is none.
    """
    assert 0 <= start <= end, (start, end)
    if position.timestamp_ms is not None:
        offset = timed if timed >= 0 else end
    elif position.offset is not None:
        offset = position.offset
    elif position.before_end is not None:
        offset = end - position.before_end
    else:
        assert position.after_start is not None
        offset = start + position.after_start
    return min(max(offset, start), end)


def _parse_time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        timestamp_ms = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no position in a topic; write {HELP}") from None
    if timestamp_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return timestamp_ms
