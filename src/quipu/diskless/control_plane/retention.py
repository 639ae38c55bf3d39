"""Which of a log's oldest runs a retention rule does not keep; pure."""

from collections.abc import Iterable
from typing import NamedTuple

from quipu.diskless.control_plane.interface import RetentionRule
from quipu.model.ids import Offset, TimestampMs


class RunAge(NamedTuple):
    """What retention looks at."""

    end_offset: Offset
    size: int
    age_ms: TimestampMs  # commit_plan.age_ms


def end_of_expired(
    rule: RetentionRule, log_size: int, oldest: Iterable[RunAge], now_ms: int
) -> Offset | None:
    """The end offset of the last run that goes, of the oldest ones in order; None: all stay."""
    size, end = log_size, None
    for run in oldest:
        is_old = 0 <= rule.retention_ms < now_ms - run.age_ms
        if not is_old and not 0 <= rule.retention_bytes <= size - run.size:
            break
        size, end = size - run.size, run.end_offset
    return end
