"""Makes an object from batches: header, batches by log, footer, trailer.

The bytes of batches are neither copied nor decoded: what is known of them comes from their headers,
which the caller has parsed and checked.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from quipu.diskless.control_plane.interface import COMMIT_BATCHES_MAX
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
from quipu.diskless.objects.receipts import LogNote, Receipt
from quipu.diskless.values import BatchCoordinates, LogKey, NewObject
from quipu.model.ids import Offset, ProducerId, TimestampMs
from quipu.runtime.objects.store import Buffer
from quipu.wire.record_batch import BatchHeader

_NOTHING: Final = ()


class PendingBatch(NamedTuple):
    """A batch that is about to be part of an object."""

    log: LogKey
    data: Buffer  # one whole batch
    header: BatchHeader  # of it
    base_offset: Offset = NO_OFFSET  # if it has one: rewritten objects say so


class EncodedObject(NamedTuple):
    """An object that is ready to be stored; `batches` and `coordinates` are in its order."""

    name: ObjectName
    buffers: Sequence[Buffer]
    size: int
    batches: Sequence[PendingBatch]
    coordinates: Sequence[BatchCoordinates]

    @property
    def key(self) -> str:
        """The object's key; that of receipts alone if it has no batches."""
        return self.name.key if self.batches else self.name.receipts_key

    @property
    def new_object(self) -> NewObject:
        """What is to be committed."""
        return NewObject(self.key, self.name.node_id, self.size, self.coordinates)


def encode_object(
    name: ObjectName,
    batches: Sequence[PendingBatch],
    *,
    created_ms: int,
    receipts: Sequence[Receipt] = _NOTHING,
    notes: Sequence[LogNote] = _NOTHING,
) -> EncodedObject:
    """The object of these batches, which get sorted by log; within a log they keep their order.

    Keeps diskless.objects.O4.  Without batches, it is an object of receipts and notes alone.
    """
    assert len(batches) <= COMMIT_BATCHES_MAX, len(batches)
    by_log: dict[LogKey, list[PendingBatch]] = {}
    for batch in batches:
        found = by_log.get(batch.log)
        if found is None:
            by_log[batch.log] = [batch]
        else:
            found.append(batch)
    position = HEADER_SIZE
    buffers: list[Buffer] = [HEADER]
    ordered: list[PendingBatch] = []
    coordinates: list[BatchCoordinates] = []
    entries: list[bytes] = []
    logs = []
    for log in sorted(by_log):
        of_log = by_log[log]
        logs.append((log, len(of_log)))
        ordered += of_log
        for _, data, header, base_offset in of_log:
            size, count = len(data), header.last_offset_delta + 1
            assert size == header.size, (size, header)
            newest, producer_id = header.max_timestamp, header.producer_id
            epoch, sequence = header.producer_epoch, header.base_sequence
            coordinates.append(BatchCoordinates(
                log, position, size, count, TimestampMs(newest), ProducerId(producer_id), epoch,
                sequence))
            entries.append(encode_entry(
                size, count, base_offset, newest, producer_id, epoch, sequence, header.crc))
            buffers.append(data)
            position += size
    footer = ObjectFooter(name, TimestampMs(created_ms), (), tuple(receipts), tuple(notes))
    end = close_object(join_footer(footer, logs, entries), position)
    buffers += end
    return EncodedObject(name, buffers, position + sum(map(len, end)), ordered, coordinates)
