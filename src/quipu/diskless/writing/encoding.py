"""Makes an object from a flush, as objects/encoding.py does from single batches.

The batches of a flush are sorted already, and those of each log lie together: no batch is looked at
twice, and an object has one buffer for each log.
"""

from collections.abc import Sequence
from typing import NamedTuple

from quipu.diskless.objects.footer import (
    HEADER,
    HEADER_SIZE,
    NO_OFFSET,
    ObjectFooter,
    close_object,
    encode_entry,
    join_footer,
)
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.values import BatchCoordinates, NewObject
from quipu.diskless.writing.buffer import Flush
from quipu.diskless.writing.receipts import TakenReceipts
from quipu.model.ids import ProducerId, TimestampMs
from quipu.runtime.objects.store import Buffer
from quipu.wire.record_batch import LENGTH_START


class EncodedFlush(NamedTuple):
    """An object that is ready to be stored, and what is to be committed then."""

    new: NewObject
    buffers: Sequence[Buffer]


def encode_flush(
    name: ObjectName, flush: Flush, taken: TakenReceipts, created_ms: int
) -> EncodedFlush:
    """The object of a flush; also notes in its logs where they lie."""
    position = HEADER_SIZE
    buffers: list[Buffer] = [HEADER]
    coordinates: list[BatchCoordinates] = []
    entries: list[bytes] = []
    for buffered in flush.logs:
        log, buffered.position = buffered.log, position
        buffers.append(buffered.data)
        for batch in buffered.batches:
            (_, length, _, _, crc, _, last_delta, _, newest, producer_id, epoch, sequence,
             _) = batch.header
            size, count = length + LENGTH_START, last_delta + 1
            coordinates.append(BatchCoordinates(
                log, position, size, count, TimestampMs(newest), ProducerId(producer_id), epoch,
                sequence))
            entries.append(encode_entry(
                size, count, NO_OFFSET, newest, producer_id, epoch, sequence, crc))
            position += size
        assert position == buffered.position + len(buffered.data), (log, position)
    footer = ObjectFooter(name, TimestampMs(created_ms), (), tuple(taken.receipts),
                          tuple(taken.notes))
    logs = [(buffered.log, len(buffered.batches)) for buffered in flush.logs]
    end = close_object(join_footer(footer, logs, entries), position)
    buffers += end
    size = position + sum(map(len, end))
    return EncodedFlush(NewObject(name.key, name.node_id, size, coordinates), buffers)
