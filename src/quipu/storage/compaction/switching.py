"""How a log begins a pass of compaction, and takes the segments that the pass has written.

Invariants
    storage.KS1  a new segment takes the place of others by one rename, to the name of the first of
        them.  Before it, nothing has changed; after it, the others lie within the new segment, and
        recovery removes them.  They are removed only after the rename is durable
    storage.KS2  a new segment is taken only if what it replaces is in the log as it was when the
        pass began; else its files are removed
    storage.KS3  readers keep what they have mapped: files are replaced, never written to

Each function first does the I/O, and then calls one transition of the state (log_state.py).
Not here: which segments are compacted (planning.py), recovery (recovery.py).
"""

from contextlib import suppress

from quipu.model.ids import LogOffset
from quipu.runtime.disks.disk import NotFound
from quipu.storage.compaction.planning import (
    CompactionPlan,
    SegmentFacts,
    cleaned_end,
    make_plan,
)
from quipu.storage.compaction.worker import CompactedGroup, CompactionJob, new_path
from quipu.storage.log_state import LogState
from quipu.storage.segments.segment import INDEX_SUFFIX, Segment
from quipu.storage.segments.segment_list import remove_all


def facts_of(segment: Segment) -> SegmentFacts:
    """What planning needs to know of a complete segment."""
    return SegmentFacts(
        base_log=segment.base_log, log_end=segment.log_end, size=segment.size,
        base_offset=segment.base_offset, end_offset=segment.end_offset,
        newest_ms=segment.newest_ms, created_ms=segment.created_ms,
        mark=segment.compaction_mark())


def complete_facts(state: LogState) -> list[SegmentFacts]:
    """The complete segments of a log that is loaded, oldest first."""
    return [facts_of(segment) for segment in state.segments if segment.file is None]


def plan(state: LogState, *, committed_log: LogOffset, now_ms: int) -> CompactionPlan | None:
    """What to compact of a log that is loaded; raises `CorruptLog` if that is damaged."""
    bound = min(committed_log, state.flusher.flushed_log)
    found = make_plan(complete_facts(state), state.config, bound=bound, now_ms=now_ms)
    if found is not None:
        chosen = {base for group in found.groups for base in group}
        for segment in state.segments:
            if segment.base_log in chosen and segment.damage:
                raise segment.damage[0].error(segment.path)
    return found


def job_of(
    state: LogState, found: CompactionPlan, *, now_ms: int, nonce: str, map_size_max: int
) -> CompactionJob:
    """The job that carries out a plan."""
    chosen = {base for group in found.groups for base in group}
    config = state.config
    return CompactionJob(
        path=state.directory.path, nonce=nonce,
        segments=tuple(facts for facts in complete_facts(state) if facts.base_log in chosen),
        groups=found.groups, first_dirty=found.first_dirty, end=found.end, now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms, map_size_max=map_size_max,
        kept_bases=tuple(state.derived.producers.last_bases()),
        index_interval_bytes=config.index_interval_bytes, index_max_bytes=config.index_max_bytes)


def take(state: LogState, job: CompactionJob, group: CompactedGroup) -> bool:
    """Let a new segment be part of the log; False if what it replaces has changed."""
    disk, base_log = state.directory.disk, group.bases[0]
    log_file = new_path(job, base_log)
    index_file = new_path(job, base_log, INDEX_SUFFIX)
    number = _find(state, job, group)
    if number is None:
        remove_all(disk, [log_file, index_file])
        return False
    replaced = state.segments[number]
    with suppress(NotFound):
        disk.remove(replaced.index_path)
    disk.rename(log_file, replaced.path)  # storage.KS1, storage.KS3
    disk.rename(index_file, replaced.index_path)
    segment = Segment(disk, state.directory.open_segments, replaced.path, base_log)
    segment.index_interval = state.config.index_interval_bytes
    segment.adopt(group.summary)
    segment.mark = group.mark
    state.segments_replaced(number, len(group.bases), segment)
    return True


def _find(state: LogState, job: CompactionJob, group: CompactedGroup) -> int | None:
    """The number of the first segment that is replaced; None if any has changed (storage.KS2)."""
    if state.active is None:
        return None
    segments, facts = state.segments, {each.base_log: each for each in job.segments}
    number = next((number for number, segment in enumerate(segments)
                   if segment.base_log == group.bases[0]), None)
    if number is None:
        return None
    found = segments[number : number + len(group.bases)]
    if any(segment.file is not None or segment.damage for segment in found):
        return None
    now = [facts_of(segment) for segment in found]
    return number if now == [facts[base] for base in group.bases] else None


def compacted_end(state: LogState) -> LogOffset:
    """The log offset below which the log is compacted, by this node."""
    return LogOffset(cleaned_end(complete_facts(state)))


def sync_floor(state: LogState) -> LogOffset:
    """The log offset below which a copy of this log must not end: it is copied anew (storage.KM3).

    If the topic is no longer compacted, a copy takes no holes into a segment that has none: then it
    is the end of what was compacted.
    """
    floor = 0
    for segment in state.segments:
        mark = segment.compaction_mark()
        floor = max(floor, mark.removed_end)
        if mark.may_have_holes and segment.file is None and not state.config.compacts:
            floor = max(floor, segment.log_end)
    return LogOffset(floor)
