"""When the active segment is full or old the next one is begun, with a checkpoint of the state.

Invariants
    R1  when a segment is begun, all but the one before it are sealed: so whatever lies below the
        last segment but one is durable, whoever wrote it
    R2  a replica rolls where its source did and never by itself: the checkpoint comes to it as
        a batch, and the state becomes what that says
    R3  if a checkpoint says that this node's files were flushed, they were: one that comes back
        from another node is taken only after a flush

The functions behind the methods of `Log` with the same names.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quipu.model.batch_types import CHECKPOINT
from quipu.model.errors import Code, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disk import Buffer, DiskError, File
from quipu.storage.checkpoint import Checkpoint, encode_checkpoint
from quipu.storage.segment import Segment
from quipu.wire.record_batch import BatchHeader, encode_batch, parse_header
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader, pack_prefix

if TYPE_CHECKING:
    from quipu.storage.log import Log


def prepare(log: "Log", size: int, now_ms: int) -> tuple[Segment, File]:
    """Roll if the active segment is full or old, and index the batch that comes next."""
    active, file = log.writable()
    if size > log.config.segment_bytes + PREFIX_SIZE:
        raise RequestError(f"{log.name}: batch of {size} bytes exceeds segment.bytes = "
                           f"{log.config.segment_bytes}", code=Code.RECORD_LIST_TOO_LARGE)
    if file.size + size > active.roll_size or now_ms >= active.roll_ms:
        if log.log_end == active.first_end:  # nothing is in it yet
            active.roll_ms = now_ms + log.config.segment_ms
        else:
            roll(log, now_ms)
            active, file = log.writable()
    if (file.size >= active.index_due
            and not active.add_entry(log.end_offset, log.log_end, file.size)
            and log.log_end != active.first_end):
        roll(log, now_ms)
        return log.writable()
    return active, file


def roll(log: "Log", now_ms: int) -> None:
    """Complete the active segment and start the next; what is complete is made durable."""
    _seal_earlier(log)
    log.raw_state.producers.expire(now_ms, log.config.producer_expiration_ms)
    start_segment(log, now_ms)
    log.flusher.request()


def _seal_earlier(log: "Log") -> None:
    if len(log.unsynced) > 1:
        log.flush_now()  # R1


def start_segment(log: "Log", now_ms: int) -> None:
    """Begin a segment with a checkpoint of this node."""
    checkpoint = Checkpoint(log.name, log.topic_id, log.flushed_end, log.raw_state,
                            log.place.node_id)
    batch = encode_batch(encode_checkpoint(checkpoint, now_ms), base_offset=log.end_offset,
                         leader_epoch=log.leader_epoch)
    prefix = pack_prefix(batch, batch_type=CHECKPOINT, log_offset=log.log_end)
    _begin_with(log, (prefix, batch), parse_header(memoryview(batch)), now_ms)


def follow_roll(
    log: "Log", stored: memoryview, header: StoredHeader, checkpoint: Checkpoint, now_ms: int
) -> None:
    """Begin a segment with the checkpoint of another node, at this log's end (R2)."""
    if checkpoint.is_of(log.place.node_id) and log.flushed_end < checkpoint.flushed:
        log.flush_now()  # R3
    _seal_earlier(log)
    state = checkpoint.state
    if log.is_blank:
        make_directory(log)
    else:
        state.epochs = log.raw_state.epochs  # the same, and may reach back further
    _begin_with(log, (stored,), header, now_ms)
    state.epochs.note(header.leader_epoch, header.base_offset, header.log_offset)
    log.leader_epoch = state.epochs.latest
    log.log_start_offset = state.log_start_offset = Offset(
        max(state.log_start_offset, log.log_start_offset, log.files[0].base_offset))
    log.raw_state = state
    log.flusher.request()


def make_directory(log: "Log") -> None:
    """For the first segment."""
    log.place.disk.make_directory(log.directory)
    log.is_directory_new = True


def _begin_with(
    log: "Log", parts: Sequence[Buffer], header: BatchHeader | StoredHeader, now_ms: int
) -> None:
    try:
        active = log.files.start(log.log_end, log.end_offset, parts,
                                 created_ms=header.base_timestamp, config=log.config)
    except DiskError as error:
        raise log.refused(error) from error
    log.unsynced.append(active)  # before the end moves: see G1
    log.active, log.is_blank = active, False
    log.log_end = LogOffset(log.log_end + header.last_offset_delta + 1)
    active.first_end = log.log_end
    if log.log_end >= log.flusher.due_at:
        log.flusher.appended(now_ms)
