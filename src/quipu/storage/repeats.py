"""Finds a batch of an idempotent producer that is older than those in the producer's state.

The state has a producer's last five batches, as many as a client has in flight at once.  But a
batch whose response was an error may be in the log all the same, and the client sends it again
together with new ones: after a second such round it lies further back, and is found in the log.

A tiered log may have only its last records here.  What lies before them is not searched for: a log
takes the sequences of a producer's epoch in order, so a batch before those that are remembered is
in the log; only its offset is not known.  Clients take DUPLICATE_SEQUENCE_NUMBER for that.
"""

from struct import Struct
from typing import Final

from quipu.model.errors import Code, RequestError
from quipu.model.ids import Offset
from quipu.storage.derived.producers import SEQUENCE_COUNT
from quipu.storage.log import Log
from quipu.wire.record_batch import LENGTH_START, BatchHeader

# So many records before the oldest batch that is remembered are searched, and so many bytes: the
# nearest first, for few batches of one client come between.
_DISTANCES: Final = (100, 1_000, 10_000)
_SIZE_MAX: Final = 1 << 20
_PRODUCER: Final = Struct(">qhi")  # id, epoch and first sequence, as they lie in a batch's header
_WALK: Final = Struct(">qi11xi16xqhi")  # baseOffset, batchLength, lastOffsetDelta, then the same


def find_repeat(log: Log, wanted: BatchHeader) -> Offset | None:
    """The first offset that a batch with `wanted`'s producer and sequences was given before.

    Raises DUPLICATE_SEQUENCE_NUMBER if it lies before what this node has of the log.
    """
    remembered = log.producers.seen(wanted.producer_id)
    if not remembered:
        return None
    oldest = remembered[0]
    behind = (oldest.first_sequence - wanted.base_sequence) % SEQUENCE_COUNT
    if not 0 < behind < SEQUENCE_COUNT // 2:
        return None
    end = Offset(oldest.base_offset)
    for distance in _DISTANCES:
        start = Offset(max(log.local_start_offset, end - distance))
        if start < end and (found := _find(log, start, end, wanted)) is not None:
            return found
    if (log.config.is_tiered and log.local_start_offset > max(0, end - _DISTANCES[-1])
            and log.producers.epoch_of(wanted.producer_id) == wanted.producer_epoch):
        raise RequestError(
            f"{log.name}: the batch of producer {wanted.producer_id} with sequence "
            f"{wanted.base_sequence} was appended before; this node has the log only from offset "
            f"{log.local_start_offset} on", code=Code.DUPLICATE_SEQUENCE_NUMBER)
    return None


def _find(log: Log, start: Offset, end: Offset, wanted: BatchHeader) -> Offset | None:
    producer = wanted.producer_id, wanted.producer_epoch, wanted.base_sequence
    mark = _PRODUCER.pack(*producer)
    for batches in log.read(start, _SIZE_MAX, end=end, min_one=True):
        if mark not in bytes(batches):
            continue  # nearly always: found out in C, for there may be ten thousand batches
        position = 0
        while position < len(batches):
            base_offset, length, delta, *found = _WALK.unpack_from(batches, position)
            if tuple(found) == producer and delta == wanted.last_offset_delta:
                return Offset(base_offset)
            position += LENGTH_START + length
    return None
