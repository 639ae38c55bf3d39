"""Batches that a node makes itself: internal ones, and records that no client sent.

The functions behind the methods of `Log` with the same names.
Not here: a client's batch, which is written as it came (log.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quipu.model.batch_types import CHECKPOINT, DATA, BatchType, require_set
from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.storage import opening, rolling
from quipu.storage.appended import Appended
from quipu.storage.segment import Segment
from quipu.wire.record_batch import BatchHeader, Record, encode_batch, parse_header
from quipu.wire.stored_batch import PREFIX_SIZE, pack_prefix

if TYPE_CHECKING:
    from quipu.storage.log import Log


def begin(log: "Log", epoch: Epoch, now_ms: int) -> Segment:
    """The active segment; a blank log's first one is of the epoch that begins it."""
    log.load()
    if log.is_blank and epoch >= 0:
        log.set_epoch(epoch)
    return opening.begin(log, now_ms)


def append_records(
    log: "Log", batch_type: BatchType, records: Sequence[Record], *, epoch: Epoch, now_ms: int
) -> Appended:
    """Append `records` as one batch of `batch_type`; those without a time get `now_ms`."""
    require_set(batch_type, log.name, log.end_offset)
    assert batch_type != CHECKPOINT, "a checkpoint starts a segment: roll"
    begin(log, epoch, now_ms)
    batch = encode_batch(
        [record if record.timestamp >= 0 else record._replace(timestamp=now_ms)
         for record in records],
        base_offset=log.end_offset, leader_epoch=epoch)
    view = memoryview(batch)
    header = parse_header(view)
    if batch_type == DATA:
        return log.append(view, header, epoch=epoch, now_ms=now_ms)
    if epoch != log.leader_epoch and epoch >= 0:
        log.set_epoch(epoch)
    log_offset = append_internal(log, batch_type, batch, header, now_ms)
    return Appended(log.end_offset, Offset(log.end_offset - 1), log_offset, duplicate=False)


def append_internal(
    log: "Log", batch_type: int, batch: bytearray, header: BatchHeader, now_ms: int
) -> LogOffset:
    """Write a batch that takes no client offsets; `batch` has its offset and epoch."""
    _, file = rolling.prepare(log, len(batch) + PREFIX_SIZE, now_ms)
    log_offset = log.log_end
    prefix = pack_prefix(batch, batch_type=batch_type, log_offset=log_offset)
    log.write(file, (prefix, batch), len(prefix) + len(batch))
    log.log_end = LogOffset(log_offset + header.last_offset_delta + 1)
    if log.log_end >= log.flusher.due_at:
        log.flusher.appended(now_ms)
    return log_offset
