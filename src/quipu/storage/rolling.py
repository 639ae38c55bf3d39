"""When the active segment is full or old the next one is started, with a checkpoint.

Invariants
    storage.R1  when a segment is begun, all but the one before it are sealed: so everything
        below the last segment but one is durable, whichever node wrote it
    storage.R2  a replica rolls where its source did and never by itself: the checkpoint comes to
        it as a batch, and the derived state becomes what that says
    storage.R3  if a checkpoint says that this node's files were flushed, they were: one of its own
        that comes back from another node is appended only after a flush

Each function first does the I/O, and then calls one transition of the state (log_state.py).
Not here: the files (segments/segment_list.py), the bytes of a checkpoint (derived/checkpoint.py).
"""

from dataclasses import replace

from quipu.model.batch_types import CHECKPOINT
from quipu.model.errors import Code, RequestError
from quipu.model.ids import LogOffset
from quipu.runtime.disks.disk import DiskError, File
from quipu.storage.compaction.marks import NO_MARK, received
from quipu.storage.derived.checkpoint import Checkpoint, DerivedState, encode_checkpoint
from quipu.storage.log_state import LogState
from quipu.storage.phases import LogPhase
from quipu.storage.segments.segment import Segment
from quipu.storage.segments.segment_list import FirstBatch
from quipu.wire.record_batch import encode_batch, parse_header
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader, pack_prefix


def make_room(state: LogState, size: int, now_ms: int) -> tuple[Segment, File]:
    """Roll if the active segment is full or old, and index the batch of `size` that comes next."""
    assert size > PREFIX_SIZE, size
    active, file = state.writable()
    config = state.config
    if size > config.segment_bytes + PREFIX_SIZE:
        raise RequestError(f"{state.name}: batch of {size} bytes exceeds segment.bytes = "
                           f"{config.segment_bytes}", code=Code.RECORD_LIST_TOO_LARGE)
    if file.size + size > active.roll_size or now_ms >= active.roll_ms:
        if state.log_end == active.checkpoint_log_end:  # nothing is in it yet
            active.postpone_roll(now_ms + config.segment_ms)
        else:
            roll(state, now_ms)
            active, file = state.writable()
    if (file.size >= active.index_due
            and not active.add_entry(state.end_offset, state.log_end, file.size)
            and state.log_end != active.checkpoint_log_end):
        roll(state, now_ms)  # its index is full
        return state.writable()
    return active, file


def roll(state: LogState, now_ms: int) -> None:
    """Complete the active segment and start the next; what is complete is made durable."""
    before = state.active
    seal_earlier(state)
    state.derived.producers.expire(now_ms, state.config.producer_expiration_ms)
    start_segment(state, now_ms)
    assert state.active is not before, state.name
    assert before is None or before.log_end == state.segments[-1].base_log, state.name  # storage.S1
    state.flusher.request()


def seal_earlier(state: LogState) -> None:
    """Make all but the active segment durable, and seal them (storage.R1)."""
    if len(state.flusher.unsynced) > 1:
        state.flusher.flush_now()
        assert not state.flusher.is_dirty, state.name


def start_segment(state: LogState, now_ms: int) -> None:
    """Start a segment with a checkpoint of this node."""
    assert state.phase is not LogPhase.CLOSED, state.name
    assert state.failure is None, state.name
    derived = replace(state.derived, log_start_offset=state.log_start_offset)
    checkpoint = Checkpoint(state.name, state.directory.topic_id, state.flusher.flushed_log,
                            derived, state.directory.node_id)
    batch = encode_batch(encode_checkpoint(checkpoint, now_ms), base_offset=state.end_offset,
                         leader_epoch=state.leader_epoch)
    prefix = pack_prefix(batch, batch_type=CHECKPOINT, log_offset=state.log_end)
    active = _start(state, FirstBatch((prefix, batch), parse_header(memoryview(batch))))
    active.mark = NO_MARK
    state.segment_started(active, derived, state.leader_epoch, now_ms)


def follow_roll(
    state: LogState, stored: memoryview, header: StoredHeader, checkpoint: Checkpoint, now_ms: int
) -> None:
    """Start a segment with the checkpoint of another node, at this log's end (storage.R2)."""
    assert header.log_offset == state.log_end, (state.name, header.log_offset, state.log_end)
    assert header.base_offset == state.end_offset, (state.name, header.base_offset)
    if checkpoint.is_of(state.directory.node_id) and (
            state.flusher.flushed_log < checkpoint.flushed):
        state.flusher.flush_now()  # storage.R3
    seal_earlier(state)
    before = None if state.active is None else state.derived
    active = _start(state, FirstBatch((received(stored, header),), header))
    derived = _followed(checkpoint, header, before)
    state.segment_started(active, derived, derived.epochs.latest, now_ms)
    state.flusher.request()


def _start(state: LogState, first: FirstBatch) -> Segment:
    """Make the file of a segment at the log's end, with its first batch in it."""
    if not state.segments:
        state.directory.disk.make_directory(state.directory.path)
    try:
        return state.segments.start(state.log_end, state.end_offset, first, state.config)
    except DiskError as error:
        raise state.refused(error) from error


def _followed(
    checkpoint: Checkpoint, header: StoredHeader, before: DerivedState | None
) -> DerivedState:
    """The derived state of a replica once it has started a segment with `checkpoint`.

    `before` is its state so far, None if it had no segment: its leader epochs are the same, and
    may reach back further; what is tiered is the same.
    """
    sent = checkpoint.state
    start, epochs = sent.log_start_offset, sent.epochs
    tiered = sent.tiered._replace(log_end=LogOffset(header.next_log_offset))
    if before is not None:
        start, epochs = max(start, before.log_start_offset), before.epochs
        tiered = before.tiered
    epochs.note(header.leader_epoch, header.base_offset, header.log_offset)
    return DerivedState(start, epochs, sent.producers, tiered)
