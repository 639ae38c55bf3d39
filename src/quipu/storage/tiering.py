"""What a log does for a remote tier: segments that may be copied, and what the tier has.

That the tier has a copy is a batch in the log itself (TIERED), so every replica knows it, also
after a restart.

Invariants
    storage.W1  a segment is deleted locally because the tier has it only once the batch that says
        so is committed and on this node's disk: so it can be lost neither here nor by a change of
        leaders
    storage.W2  the first TIERED batch follows a LOG_START batch, unless the batches say already
        where the log starts: from then on a replica need not have the segment where it does

Each function that writes first does the I/O, and then calls one transition of the state
(log_state.py).
Not here: which segments go locally (retention.py), the tier (quipu/remote).
"""

from itertools import pairwise

from quipu.model.batch_types import LOG_START, TIERED
from quipu.model.errors import Code, CorruptLog, OffsetOutOfRange, RequestError
from quipu.model.ids import NO_EPOCH, LogOffset, Offset, TimestampMs
from quipu.model.tiered_log import TierableSegment
from quipu.storage import opening, writing
from quipu.storage.derived.checkpoint import (
    NOT_TIERED,
    Tiered,
    decode_checkpoint,
    encode_log_start,
    encode_tiered,
)
from quipu.storage.derived.epochs import EpochStart
from quipu.storage.log_state import LogState
from quipu.storage.segments.segment import Segment
from quipu.wire.record_batch import Record, encode_batch, parse_header
from quipu.wire.scan_run import sound_end
from quipu.wire.stored_batch import STORED_HEADER_SIZE, Fault, check_header


class OpenedSegment:
    """The bytes of a segment, for a tier: its mapping stays valid if the log drops the file."""

    __slots__ = ("_base_log", "_data", "index", "path", "producers")

    def __init__(
        self, segment: Segment, data: memoryview, index: bytes, producers: bytes
    ) -> None:
        self.path = segment.path
        self._base_log = segment.base_log
        self._data: memoryview | None = data
        self.index = index
        self.producers = producers

    @property
    def data(self) -> memoryview:
        assert self._data is not None, self.path
        return self._data

    def check(self) -> None:
        """Raise `CorruptLog` unless every batch is intact."""
        size = len(self.data)
        position, _ = sound_end(self.data, 0, size, self._base_log)
        if position != size:
            raise CorruptLog(f"{self.path}: a damaged batch at position {position}: not copied; "
                             "see `quipu log show`")

    def release(self) -> None:
        """Give up the bytes."""
        self._data = None


def tierable(state: LogState, *, stable_end: Offset, count_max: int) -> list[TierableSegment]:
    """The complete segments below `stable_end` that the tier is not known to have, oldest first."""
    opening.load(state)
    if state.active is None:
        return []
    start = max(state.derived.tiered.end_offset, state.log_start_offset)
    found: list[TierableSegment] = []
    for segment in state.segments[:-1]:
        if segment.end_offset <= start or segment.base_offset == segment.end_offset:
            continue
        if segment.end_offset > stable_end or segment.file is not None or len(found) == count_max:
            break
        found.append(TierableSegment(
            Offset(segment.base_offset), Offset(segment.end_offset), LogOffset(segment.base_log),
            LogOffset(segment.log_end), segment.size, TimestampMs(segment.max_timestamp),
            tuple(state.derived.epochs.within(
                EpochStart(NO_EPOCH, Offset(segment.base_offset), LogOffset(segment.base_log)),
                segment.end_offset))))
    return found


def open_segment(state: LogState, wanted: TierableSegment) -> OpenedSegment:
    """The bytes of a complete segment; raises if the log has it no more, or it is damaged."""
    opening.load(state)
    found = [(segment, after) for segment, after in pairwise(state.segments)
             if (segment.base_log, segment.log_end) == (wanted.base_log, wanted.log_end)]
    if not found:
        raise RequestError(
            f"{state.name}: the segment at log offset {wanted.base_log} is not kept any more: "
            "copy those that are", code=Code.OFFSET_OUT_OF_RANGE)
    ((segment, after),) = found
    if segment.damage:
        raise segment.damage[0].error(segment.path)
    data, start = segment.window(0, segment.size)
    assert start == 0, segment.path
    assert len(data) == segment.size == wanted.size, (segment.path, len(data))
    return OpenedSegment(segment, data, segment.index_entries(), _producers_at(after))


def _producers_at(segment: Segment) -> bytes:
    """The producers where `segment` begins, as its checkpoint has them."""
    view, start = segment.window(0, STORED_HEADER_SIZE)
    assert start == 0, segment.path
    header = check_header(view, 0)
    if isinstance(header, Fault):
        raise CorruptLog(f"{segment.path}: {header} at its checkpoint")
    return decode_checkpoint(view[: header.size]).state.producers.encode()


def note_tiered(
    state: LogState, last_offset: Offset, now_ms: int, *, stable_end: Offset
) -> LogOffset:
    """Append that the tier has everything up to `last_offset`, unless that is known.

    Returns the end of what must be committed for it.
    """
    opening.load(state)
    if not 0 <= last_offset < stable_end:
        raise OffsetOutOfRange(state.name, last_offset, state.log_start_offset, stable_end)
    if last_offset <= state.derived.tiered.offset:
        return state.derived.tiered.log_end
    if state.derived.log_start_offset < state.log_start_offset:  # storage.W2
        start = state.log_start_offset
        _append(state, LOG_START, encode_log_start(start, now_ms), now_ms)
        state.log_start_moved(start)
    _append_tiered(state, Tiered(last_offset, state.derived.epochs.at(last_offset)), now_ms)
    return state.log_end


def forget_tier(state: LogState, now_ms: int) -> LogOffset:
    """Append that the tier has nothing, and that the log starts where its first segment does.

    Returns the end of what must be committed for it.
    """
    opening.load(state)
    start = state.local_start_offset
    if state.derived.log_start_offset < start:
        _append(state, LOG_START, encode_log_start(start, now_ms), now_ms)
        state.log_start_moved(start)
    if state.derived.tiered.offset >= 0:
        _append_tiered(state, NOT_TIERED, now_ms)
    assert state.log_start_offset == state.local_start_offset, state.name  # storage.L6
    return state.log_end


def _append_tiered(state: LogState, tiered: Tiered, now_ms: int) -> None:
    _append(state, TIERED, encode_tiered(tiered, now_ms), now_ms)
    state.tier_moved(tiered._replace(log_end=state.log_end))


def _append(state: LogState, batch_type: int, records: list[Record], now_ms: int) -> None:
    batch = encode_batch(records, base_offset=state.end_offset, leader_epoch=state.leader_epoch)
    writing.append_internal(state, batch_type, batch, parse_header(memoryview(batch)), now_ms)


def local_end(state: LogState, committed_log: LogOffset) -> Offset:
    """The end of what may go locally because the tier has it (storage.W1).

    What is not on the disk yet is flushed, for the next time.
    """
    tiered = state.derived.tiered
    if tiered.offset < 0 or tiered.log_end > committed_log:
        return Offset(0)
    if tiered.log_end > state.flusher.flushed_log:
        state.flusher.request()
        return Offset(0)
    return tiered.end_offset


def copy_start(state: LogState) -> LogOffset:
    """Where a copy of the log for an empty replica begins: with the first segment, or the last
    below which the tier has every record.
    """
    assert state.segments, state.name
    tiered = state.derived.tiered
    if (not state.config.is_tiered or tiered.offset < 0
            or tiered.log_end > state.committed_log):
        return LogOffset(state.segments[0].base_log)
    within = [segment for segment in state.segments if segment.base_offset <= tiered.end_offset]
    return LogOffset((within or state.segments[:1])[-1].base_log)
