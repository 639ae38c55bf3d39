"""Finds a batch of an idempotent producer that is older than those its state remembers.

A producer's last five batches are remembered, as many as a client has on their way at once.  But a
batch whose answer was an error may be in the log all the same, and the client sends it again
together with new ones: after a second such round it lies further back.  The log itself knows it.
"""

from typing import Final

from quipu.model.ids import Offset
from quipu.storage.log import Log
from quipu.storage.producers import SEQUENCE_COUNT
from quipu.wire.record_batch import BatchHeader, parse_header

# So many records before the oldest batch that is remembered are searched, and so many bytes: the
# nearest first, for few batches of one client come between.
_DISTANCES: Final = (100, 1_000, 10_000)
_SIZE_MAX: Final = 1 << 20


def find_repeat(log: Log, wanted: BatchHeader) -> Offset | None:
    """The first offset that a batch with `wanted`'s producer and sequences was given before."""
    remembered = log.state.producers.seen(wanted.producer_id)
    if not remembered:
        return None
    oldest = remembered[0]
    behind = (oldest.first_sequence - wanted.base_sequence) % SEQUENCE_COUNT
    if not 0 < behind < SEQUENCE_COUNT // 2:
        return None
    end = Offset(oldest.base_offset)
    for distance in _DISTANCES:
        start = Offset(max(log.log_start_offset, end - distance))
        if start < end and (found := _find(log, start, end, wanted)) is not None:
            return found
    return None


def _find(log: Log, start: Offset, end: Offset, wanted: BatchHeader) -> Offset | None:
    identity = _identity(wanted)
    for batches in log.read(start, _SIZE_MAX, end=end, min_one=True):
        position = 0
        while position < len(batches):
            header = parse_header(batches, position)
            if header.producer_id == wanted.producer_id and _identity(header) == identity:
                return Offset(header.base_offset)
            position += header.size
    return None


def _identity(header: BatchHeader) -> tuple[int, int, int]:
    return header.producer_epoch, header.base_sequence, header.last_offset_delta
