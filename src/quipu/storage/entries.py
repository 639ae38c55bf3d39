"""Entries: batches of one type that travel together, by value, from one log to another.

An entry is stored batches back to back.  It is checked as a whole before any of it is written:
every checksum, type and offset, and that all batches are of one type.
"""

from typing import TYPE_CHECKING, NamedTuple

from quipu.model.batch_types import CHECKPOINT, DATA, describe, require_set
from quipu.model.errors import Code, RequestError
from quipu.wire.stored_batch import Fault, StoredHeader, check_stored

if TYPE_CHECKING:
    from quipu.storage.log import Log


class EntryBatch(NamedTuple):
    """One batch of an entry."""

    header: StoredHeader
    data: memoryview


def split_entry(
    stored: memoryview, *, log: str, log_end: int, end_offset: int
) -> list[EntryBatch]:
    """The batches of an entry that is to follow `log_end` and `end_offset` in `log`.

    Raises `RequestError`, or `UnsetBatchType` for a batch of type 0.
    """
    entry: list[EntryBatch] = []
    position = 0
    while position < len(stored):
        header = check_stored(stored, position)
        if header is Fault.UNSET_TYPE:
            require_set(0, log, end_offset)
        if isinstance(header, Fault):
            raise RequestError(f"{log}: entry with {header.value} at byte {position}",
                               code=Code.CORRUPT_MESSAGE)
        if (header.log_offset, header.base_offset) != (log_end, end_offset):
            raise RequestError(
                f"{log}: entry at log offset {header.log_offset}, offset {header.base_offset}, "
                f"where {log_end} and {end_offset} come next: send what lies between first",
                code=Code.OFFSET_OUT_OF_RANGE)
        if header.last_offset_delta < 0:
            raise RequestError(f"{log}: batch of {header.last_offset_delta + 1} records",
                               code=Code.INVALID_RECORD)
        if entry and header.batch_type != entry[0].header.batch_type:
            raise RequestError(
                f"{log}: entry mixes batches of type {describe(entry[0].header.batch_type)} and "
                f"{describe(header.batch_type)}: send one entry per type",
                code=Code.INVALID_RECORD)
        entry.append(EntryBatch(header, stored[position : position + header.size]))
        position += header.size
        log_end, end_offset = header.next_log_offset, header.next_offset
    return entry


def append_entry(log: "Log", stored: memoryview) -> None:
    """Append an entry to `log`: all of it is checked before any of it is written.

    A checkpoint starts a segment, so the copy's files are the original's, byte for byte.
    """
    log.load()
    entry = split_entry(stored, log=log.name, log_end=log.log_end, end_offset=log.end_offset)
    for header, data in entry:
        if header.batch_type == CHECKPOINT:
            log.roll_to((data,), header)
            continue
        active, file = log.writable()
        if file.size >= active.index_due:
            active.add_entry(header.base_offset, header.log_offset, file.size)
        log.write(file, data)
        if header.batch_type == DATA:
            active.max_timestamp = max(active.max_timestamp, header.max_timestamp)
        log.replayed(header, data)
