"""How much is decoded at once, and how much one message may hold.

A few bytes can stand for many values: an empty record, of 3 bytes in JSON and 2 in Protocol
Buffers, has a value for each field of its type, and a batch of 64 MiB may have come as a few
kilobytes.  So messages are decoded in blocks (`blocks`), and whoever is about to make more than
VALUES_MAX values at once raises TooManyValues: the block is then decoded in halves, and a message
that is too much by itself is an error of its own (`decoded_by_halves`).  Protocol Buffers and Avro
count before they read (`protobuf_size`, `avro_steps`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.types import Column

VALUES_MAX: Final = 1 << 24  # of one message, or of several that are decoded together
BLOCK_SIZE: Final = 16 << 20  # bytes of messages that are decoded together


class TooManyValues(ValueError):
    """More values than are made at once."""

    def __init__(self) -> None:
        super().__init__("its records and lists have too many values: send them in several "
                         "messages")


def width(kind: pa.DataType) -> int:
    """How many values there are for each value of a type: those of its fields, not of its lists."""
    if pa.types.is_struct(kind):
        return 1 + sum(width(field.type) for field in kind)
    return 1


def blocks(columns: Sequence[Column], messages: Sequence[pa.BinaryArray]) -> Iterator[slice]:
    """Rows of messages (of their keys and values, say) that are decoded together."""
    count = len(messages[0])
    rows_max = max(1, VALUES_MAX // max(1, sum(width(column.type) for column in columns)))
    if count <= rows_max and sum(each.nbytes for each in messages) <= BLOCK_SIZE:
        yield slice(0, count)
        return
    sizes = sum(np.asarray(pc.fill_null(pc.binary_length(each), 0), np.int64) for each in messages)
    ends = np.cumsum(sizes)
    start = 0
    while start < count:
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + BLOCK_SIZE, side="right"))
        end = min(max(end, start + 1), start + rows_max)
        yield slice(start, end)
        start = end


def decoded_by_halves(
    decode: Callable[[pa.BinaryArray], Decoded], data: pa.BinaryArray, columns: Sequence[Column],
    prefix: str,
) -> Decoded:
    """What `decode`, which may raise TooManyValues, makes of messages.

    Errors begin with `prefix`.
    """
    try:
        return decode(data)
    except TooManyValues as error:
        if len(data) == 1:
            return Decoded([pa.nulls(1, column.type) for column in columns],
                           pa.array([f"{prefix}{error}"]), pa.array([False]))
    middle = len(data) // 2
    parts = [decoded_by_halves(decode, half, columns, prefix)
             for half in (data.slice(0, middle), data.slice(middle))]
    pairs = zip(*(part.columns for part in parts), strict=True)
    return Decoded(
        [pa.concat_arrays(pair) for pair in pairs],
        pa.concat_arrays([part.errors for part in parts]),
        pa.concat_arrays([part.absent for part in parts]))
