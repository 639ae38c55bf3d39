"""Scans a run of plain batches in a segment: the Python version of `_scan.pyx`.

A scan checks every byte of a segment.  Nearly all of it is data batches that follow each other
as they should; `scan_run` checks those in one call and returns a summary, so that the caller looks
one by one only at the others: internal batches, a new leader epoch, and damaged batches.

A data batch is plain if it lies whole in the buffer, its checksums, layout and lengths are right,
it has the next offsets, both at most `OFFSET_MAX`, and the expected leader epoch, and its count of
records matches its offsets and is no more than its bytes can hold.
If it has a producer, its sequence is not negative, the producer's epoch is that of its batches
earlier in the run, and the run has seen at most `PRODUCERS_MAX` producers.
A run ends before the first batch that is not plain, without a reason; the scan never raises.
"""

from typing import Final, NamedTuple

from quipu.model.batch_types import DATA
from quipu.model.ids import NO_TIMESTAMP
from quipu.wire.record_batch import count_max
from quipu.wire.stored_batch import STORED_HEADER_SIZE, Fault, StoredHeader, check_stored

BATCHES_KEPT: Final = 5  # the last batches of each producer that a run remembers
PRODUCERS_MAX: Final = 1000  # in one run
OFFSET_MAX: Final = 1 << 62  # sums in C stay far from an overflow

Mark = tuple[int, int, int, int]  # offset, log offset, position, largest timestamp before it
RunBatch = tuple[int, int, int]  # base sequence, last offset delta, base offset
RunProducer = tuple[int, int, list[RunBatch]]  # id, epoch, batches from old to new


class Expected(NamedTuple):
    """The offsets and epoch that the next batch must have."""

    log_offset: int
    offset: int
    leader_epoch: int


class Run(NamedTuple):
    """A summary of the batches of a run."""

    end: int  # position after the last one
    log_end: int
    end_offset: int
    max_timestamp: int  # NO_TIMESTAMP if all are older
    marks: list[Mark]  # the batches for which the index gets an entry
    producers: list[RunProducer]  # in the order of their first batches in the run


def scan_run(
    data: memoryview, position: int, expected: Expected, *, mark_due: int, mark_interval: int
) -> Run:
    """Scan the run of plain batches at `position`.

    The first batch at or after `mark_due` gets an index entry, then one per `mark_interval` bytes.
    """
    log_end, end_offset, leader_epoch = expected
    newest: int = NO_TIMESTAMP
    marks: list[Mark] = []
    producers: dict[int, RunProducer] = {}
    while True:
        header = check_stored(data, position)
        if (isinstance(header, Fault) or header.batch_type != DATA
                or header.log_offset != log_end or header.base_offset != end_offset
                or header.leader_epoch != leader_epoch or header.last_offset_delta < 0
                or header.count != header.last_offset_delta + 1
                or header.count > count_max(header.size - STORED_HEADER_SIZE, header.attributes)
                or not 0 <= log_end <= OFFSET_MAX or not 0 <= end_offset <= OFFSET_MAX
                or (header.producer_id >= 0 and not _note(producers, header))):
            return Run(position, log_end, end_offset, newest, marks, list(producers.values()))
        if position >= mark_due:
            marks.append((end_offset, log_end, position, newest))
            mark_due = position + mark_interval
        newest = max(newest, header.max_timestamp)
        log_end += header.last_offset_delta + 1
        end_offset += header.last_offset_delta + 1
        position += header.size


def _note(producers: dict[int, RunProducer], header: StoredHeader) -> bool:
    """Add a batch to those of its producer; False if it is not plain because of its producer."""
    known = producers.get(header.producer_id)
    if header.base_sequence < 0 or (known is None and len(producers) == PRODUCERS_MAX):
        return False
    if known is None:
        known = producers[header.producer_id] = (header.producer_id, header.producer_epoch, [])
    elif known[1] != header.producer_epoch:
        return False
    batches = known[2]
    batches.append((header.base_sequence, header.last_offset_delta, header.base_offset))
    if len(batches) > BATCHES_KEPT:
        del batches[0]
    return True


def sound_end(data: memoryview, position: int, end: int, log_offset: int) -> tuple[int, int]:
    """Check batches of any type, header and body, until one begins at or after `end`.

    The batch at `position` must have `log_offset`.  Returns the position after the last undamaged
    batch, and the log offset there; if that position is below `end`, the batch there is damaged.
    """
    while position < end and 0 <= log_offset <= OFFSET_MAX:
        header = check_stored(data, position)
        if isinstance(header, Fault) or header.log_offset != log_offset or (
                header.last_offset_delta < 0):
            break
        position += header.size
        log_offset = header.next_log_offset
    return position, log_offset
