"""Which segments may go: by age, by size, or because their records were deleted.

Of a tiered log the limits are those of its local segments, and a segment goes by age or size only
if the tier has it: what goes from both tiers is decided by moving the log start.

Pure: decides, and changes nothing.  Segments go oldest first and only whole, only below the high
watermark, and for one reason each: the first segment that no reason applies to stays, and so do
all after it.
"""

from collections.abc import Sequence

from quipu.storage.config import LogConfig
from quipu.storage.log_directory import CleanShutdown
from quipu.storage.segments.segment import Segment


def expired_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    end_offset: int,
    high_watermark: int,
    tiered_end: int = 0,
    now_ms: int,
) -> int:
    """How many of `segments`, from the oldest, may go; the active one, which ends at `end_offset`,
    counts as any other.  The tier has what lies below `tiered_end`.
    """
    age_max, size_max = _limits(config)
    surplus = sum(segment.size for segment in segments) - size_max if size_max >= 0 else -1
    needs_tier = config.is_tiered and config.is_copied
    count = 0
    for segment in segments:
        is_active = segment is segments[-1]
        if (end_offset if is_active else segment.end_offset) > high_watermark:
            break
        is_deleted = not is_active and _is_below(segment, log_start_offset)
        if not is_deleted:
            if needs_tier and (is_active or segment.end_offset > tiered_end):
                break
            if surplus - segment.size < 0 and not 0 <= age_max < now_ms - segment.newest_ms:
                break
        surplus -= segment.size
        count += 1
    return count


def _is_below(segment: Segment, log_start_offset: int) -> bool:
    """Are all records deleted?  One without records is, once later records are."""
    if segment.end_offset == segment.base_offset:
        return segment.end_offset < log_start_offset
    return segment.end_offset <= log_start_offset


def _limits(config: LogConfig) -> tuple[int, int]:
    """The age in milliseconds and the size in bytes above which segments go; -1 for no limit."""
    if config.is_tiered:
        return config.local_retention_ms, config.local_retention_bytes
    return config.retention_ms, config.retention_bytes


def may_expire(clean: CleanShutdown, config: LogConfig, now_ms: int) -> bool:
    """Could a log that was closed like that have something to remove?"""
    age_max, size_max = _limits(config)
    return 0 <= age_max < now_ms - clean.oldest_ms or 0 <= size_max < clean.size_bytes
