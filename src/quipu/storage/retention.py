"""Which segments may go: by age, by size, or because their records were deleted.

Pure: decides, and does nothing.  Segments go oldest first and only whole, only below the high
watermark, and for one reason each: a segment that no reason touches ends the list.
"""

from collections.abc import Sequence

from quipu.storage.config import LogConfig
from quipu.storage.place import CleanStop
from quipu.storage.segment import Segment


def expired_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of `segments`, from the oldest, may go; the active one counts as any other."""
    surplus = (sum(segment.size for segment in segments) - config.retention_bytes
               if config.retention_bytes >= 0 else -1)
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark:
            break
        is_deleted = segment is not segments[-1] and _is_below(segment, log_start_offset)
        is_surplus = surplus - segment.size >= 0
        if not (is_deleted or is_surplus or _is_old(segment, config, now_ms)):
            break
        surplus -= segment.size
        count += 1
    return count


def _is_below(segment: Segment, log_start_offset: int) -> bool:
    """Are all records deleted?  One without records is, once later records are."""
    if segment.end_offset == segment.base_offset:
        return segment.end_offset < log_start_offset
    return segment.end_offset <= log_start_offset


def _is_old(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    return 0 <= config.retention_ms < now_ms - segment.newest_ms


def may_expire(clean: CleanStop, config: LogConfig, now_ms: int) -> bool:
    """Could a log that was closed like that have something to remove?"""
    return (0 <= config.retention_ms < now_ms - clean.oldest_ms
            or 0 <= config.retention_bytes < clean.size_bytes)
