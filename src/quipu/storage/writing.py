"""What is written to a log besides a client's batch: the node's own batches, and copies.

    append_records   records of this node, as one batch of any type
    append_internal  a batch that takes no client offsets
    append_entry     batches of another node, as they are (entries.py)

Each function first does the I/O, and then calls one transition of the state (log_state.py).
Not here: a client's batch, which is written as it came (log.py).
"""

from collections.abc import Sequence

from quipu.model.batch_types import CHECKPOINT, DATA
from quipu.model.errors import Code, RequestError
from quipu.model.ids import LogOffset
from quipu.runtime.disks.disk import Buffer, DiskError
from quipu.storage import opening, rolling
from quipu.storage.entries import NextEntry, check_checkpoint, check_entry
from quipu.storage.log_state import LogState
from quipu.wire.record_batch import BatchHeader, Record, encode_batch
from quipu.wire.stored_batch import PREFIX_SIZE, pack_prefix


def encode_records(
    records: Sequence[Record], *, base_offset: int, leader_epoch: int, now_ms: int
) -> bytearray:
    """Encode `records` as one batch; those without a time get `now_ms`."""
    return encode_batch(
        [record if record.timestamp >= 0 else record._replace(timestamp=now_ms)
         for record in records],
        base_offset=base_offset, leader_epoch=leader_epoch)


def append_internal(
    state: LogState, batch_type: int, batch: bytearray, header: BatchHeader, now_ms: int
) -> LogOffset:
    """Write a batch that takes no client offsets; `batch` has its offset and epoch."""
    assert batch_type not in {DATA, CHECKPOINT}, batch_type
    assert header.last_offset_delta >= 0, header
    rolling.make_room(state, len(batch) + PREFIX_SIZE, now_ms)
    prefix = pack_prefix(batch, batch_type=batch_type, log_offset=state.log_end)
    _write(state, (prefix, batch), len(prefix) + len(batch))
    return state.internal_appended(header.last_offset_delta + 1, now_ms)


def append_entry(state: LogState, stored: memoryview, now_ms: int, *, epoch_max: int) -> None:
    """Append an entry of another node, all of it or nothing.

    A checkpoint starts a segment, so the copy's files are the original's, byte for byte.
    """
    opening.load(state)
    state.derived.epochs.forget_unwritten(state.log_end)  # this node led in it, and wrote nothing
    expected = NextEntry.of(state, epoch_max)
    batch_type = expected.type_of(stored)
    if batch_type == CHECKPOINT:
        header, checkpoint = check_checkpoint(stored, expected, state.directory.topic_id)
        expected.require(header)
        rolling.follow_roll(state, stored, header, checkpoint, now_ms)
        return
    active = state.active
    if active is None:
        raise RequestError(f"{state.name}: is empty: send its first checkpoint first",
                           code=Code.OFFSET_OUT_OF_RANGE)
    position = active.size
    parts = check_entry(stored, batch_type, expected, active)
    _write(state, (stored,), len(stored))  # storage.T2
    state.entry_appended(parts, position, now_ms)
    assert state.log_end > expected.log_end, state.name


def _write(state: LogState, buffers: Sequence[Buffer], size: int) -> None:
    """Append to the active segment's file, all or nothing (storage.L2)."""
    _, file = state.writable()
    position = file.size
    try:
        file.append(buffers, size)
    except DiskError as error:
        raise state.refused(error) from error
    assert file.size == position + size, (state.name, position, size)
