"""Makes the rows for `quipu bench sql`: record batches, and Arrow tables of the same rows.

Every row has a key of ten digits and a value that is a JSON object of a fixed size.  So a batch is
a matrix of bytes in which only some columns differ from row to row, and numpy fills it without a
loop over rows.  Batches are sent as they are, in requests of a megabyte.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from quipu.bench.control import connect, leaders, send_batch
from quipu.bench.errors import BenchError
from quipu.model.settings_types import Address
from quipu.wire.record_batch import HEADER, write_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS: Final = 10
FIRST: Final = 10 ** (DIGITS - 1)  # numbers start here, so that all have `DIGITS` digits
BATCH_ROWS: Final = 8192  # offsets within a batch take one byte below 64, and two above
BATCH_SIZE_MAX: Final = 900_000  # below the usual max.message.bytes
ONE_BYTE_MAX: Final = 64
TIMESTAMP_MS: Final = 1_700_000_000_000

_HEAD: Final = b'{"id":'
_AMOUNT: Final = b',"amount":'
_TEXT: Final = b',"text":"'
_TAIL: Final = b'"}'
VALUE_SIZE_MIN: Final = len(_HEAD + _AMOUNT + _TEXT + _TAIL) + 2 * DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind:
    """The rows 0 to `count`; the key of a row is one of `keys` numbers, in scattered order."""

    count: int
    value_size: int
    keys: int
    partitions: int = 2

    def __post_init__(self) -> None:
        if self.value_size < VALUE_SIZE_MIN or not 0 < self.keys <= FIRST:
            raise BenchError(f"rows need values of {VALUE_SIZE_MIN} bytes, and up to {FIRST} keys")

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return self.count * (DIGITS + self.value_size)

    def numbers(self, partition: int) -> "NDArray[np.int64]":
        """The row numbers of a partition; all rows of a key are in the same partition."""
        return np.arange(partition, self.count, self.partitions, dtype=np.int64)

    def ids(self, numbers: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """The keys of rows; every key occurs once before any occurs again."""
        per = max(1, self.keys // self.partitions)
        position, partition = np.divmod(numbers, self.partitions)
        scattered = position % per * _coprime(per) % per
        return cast("NDArray[np.int64]", FIRST + scattered * self.partitions + partition)


def produce(kind: RowKind, topic: str, address: Address) -> None:
    """Send all rows to a topic with `kind.partitions` partitions."""
    with connect(address) as cluster:
        for partition, leader in enumerate(leaders(cluster, topic, kind.partitions)):
            connection = cluster.connection_at(leader)
            for batch in batches(kind, partition):
                send_batch(connection, topic, partition, batch)


def batches(kind: RowKind, partition: int) -> Iterator[bytes]:
    """The record batches of a partition, offsets from zero."""
    row_size = DIGITS + kind.value_size + 16
    step = max(1, min(BATCH_ROWS, BATCH_SIZE_MAX // row_size))
    numbers = kind.numbers(partition)
    for start in range(0, len(numbers), step):
        ids = kind.ids(numbers[start:start + step])
        yield encode(ids, numbers[start:start + step], kind.value_size)


def encode(
    ids: "NDArray[np.int64]", amounts: "NDArray[np.int64]", value_size: int
) -> bytes:
    """One record batch, uncompressed."""
    keys, values = _digits(ids), _values(ids, amounts, value_size)
    count = len(ids)
    body = b"".join(
        _records(keys[part], values[part], np.arange(part.start, part.stop))
        for part in (slice(0, min(count, ONE_BYTE_MAX)), slice(ONE_BYTE_MAX, count))
        if part.start < part.stop
    )
    return _sealed(body, count)


def arrow_table(kind: RowKind, topic: str, partition: int) -> pa.Table:
    """The same rows with the columns of a Kafka source, for Parquet."""
    numbers = kind.numbers(partition)
    ids = kind.ids(numbers)
    count = len(numbers)
    same = pa.repeat
    return pa.table({
        "key": _binary(_digits(ids)),
        "value": _binary(_values(ids, numbers, kind.value_size)),
        "topic": same(pa.scalar(topic), count),
        "partition": same(pa.scalar(partition, pa.int32()), count),
        "offset": pa.array(np.arange(count)),
        "timestamp": same(pa.scalar(TIMESTAMP_MS * 1000, pa.timestamp("us", tz="UTC")), count),
        "timestampType": same(pa.scalar(0, pa.int32()), count),
    })


def _binary(matrix: "NDArray[np.uint8]") -> pa.Array:
    count, width = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _values(
    ids: "NDArray[np.int64]", amounts: "NDArray[np.int64]", size: int
) -> "NDArray[np.uint8]":
    filler = b"x" * (size - VALUE_SIZE_MIN)
    zeros = b"0" * DIGITS
    template = _HEAD + zeros + _AMOUNT + zeros + _TEXT + filler + _TAIL
    matrix = np.tile(np.frombuffer(template, np.uint8), (len(ids), 1))
    matrix[:, len(_HEAD):len(_HEAD) + DIGITS] = _digits(ids)
    at = len(_HEAD) + DIGITS + len(_AMOUNT)
    matrix[:, at:at + DIGITS] = _digits(FIRST + amounts)
    return matrix


def _digits(numbers: "NDArray[np.int64]") -> "NDArray[np.uint8]":
    powers = 10 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64)
    digits = numbers[:, np.newaxis] // powers % 10 + ord("0")
    return cast("NDArray[np.uint8]", digits.astype(np.uint8))


def _records(
    keys: "NDArray[np.uint8]", values: "NDArray[np.uint8]", deltas: "NDArray[np.int64]"
) -> bytes:
    """Records whose offsets within the batch take equally many bytes."""
    zigzag = deltas * 2
    if deltas[0] < ONE_BYTE_MAX:
        offset = zigzag[:, np.newaxis]
    else:
        offset = np.stack([zigzag & 0x7F | 0x80, zigzag >> 7], axis=1)
    parts: Sequence[NDArray[np.uint8]] = (
        _same(b"\0\0", len(keys)), offset.astype(np.uint8), _same(_varint(DIGITS), len(keys)), keys,
        _same(_varint(values.shape[1]), len(keys)), values, _same(b"\0", len(keys)),
    )
    size = sum(part.shape[1] for part in parts)
    return np.hstack([_same(_varint(size), len(keys)), *parts]).tobytes()


def _same(data: bytes, count: int) -> "NDArray[np.uint8]":
    return np.broadcast_to(np.frombuffer(data, np.uint8), (count, len(data)))


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def _sealed(body: bytes, count: int) -> bytes:
    fields = (0, count - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, count)
    length = HEADER.size - 12 + len(body)
    unsigned = HEADER.pack(0, length, 0, 2, 0, *fields)
    checksum = crc32c(body, crc32c(unsigned[21:]))
    return HEADER.pack(0, length, 0, 2, checksum, *fields) + body


def _coprime(count: int) -> int:
    """A step that is coprime to `count`: it visits every number below `count` before any again."""
    step = int(count * 0.618) | 1
    while np.gcd(step, count) != 1:
        step += 2
    return step
