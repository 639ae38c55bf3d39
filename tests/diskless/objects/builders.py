"""Batches and objects for tests."""

from collections.abc import Sequence
from uuid import UUID

from hypothesis import strategies as st

from quipu.diskless.objects.encoding import EncodedObject, PendingBatch, encode_object
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.values import LogKey
from quipu.model.ids import NodeId, Offset
from quipu.wire.record_batch import Record, encode_batch, parse_header

TOPIC = UUID("6f1c02d4-8f0a-4c57-9d3e-2b7a5e0c1a11")
WRITER = UUID("0b5e7d52-3c1f-4a86-b1d0-94e2f7a8c633")
NAME = ObjectName(NodeId(2), WRITER, 7)


def batch_of(
    log: LogKey, *values: bytes, base_offset: int = -1,
    producer: tuple[int, int, int] | None = None,
    timestamp: int = 1000, compression: int = 0,
) -> PendingBatch:
    """A batch with a record for each value; `producer` is id, epoch and first sequence."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    data = bytes(encode_batch(
        [Record(None, value, (), timestamp + number) for number, value in enumerate(values)],
        compression=compression, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence))
    return PendingBatch(log, data, parse_header(memoryview(data)), Offset(base_offset))


def stored(encoded: EncodedObject) -> bytes:
    return b"".join(encoded.buffers)


def object_of(batches: Sequence[PendingBatch], **more: object) -> EncodedObject:
    return encode_object(NAME, batches, **{"created_ms": 5000, **more})  # type: ignore[arg-type]


logs = st.builds(LogKey, st.uuids(), st.integers(0, (1 << 31) - 1))
names = st.builds(ObjectName, st.integers(0, (1 << 31) - 1).map(NodeId), st.uuids(),
                  st.integers(0, (1 << 63) - 1))
