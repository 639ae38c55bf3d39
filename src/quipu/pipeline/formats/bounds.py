"""Bounds on the values of messages that are decoded together, and of one message.

A few bytes can encode many values: an empty record, of 3 bytes in JSON and 2 in Protocol Buffers,
has a value for each field of its type, and a batch of 64 MiB may be compressed to a few kilobytes.
So messages are decoded in blocks (`blocks`), and a format that would make more than VALUES_MAX
values at once raises TooManyValues: the block is then decoded in halves, and a message that has too
many values by itself is an error of its row (`decoded_by_halves`).  Protocol Buffers and Avro count
the values before they decode them (`protobuf/size.py`, `avro/steps.py`).
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
    """More values than may be decoded at once."""

    def __init__(self) -> None:
        super().__init__("its records and lists have too many values: send them in several "
                         "messages")


def width(kind: pa.DataType) -> int:
    """The number of values in a value of a type: itself and its fields, without items of lists."""
    if pa.types.is_struct(kind):
        return 1 + sum(width(field.type) for field in kind)
    return 1


def blocks(columns: Sequence[Column], messages: Sequence[pa.BinaryArray]) -> Iterator[slice]:
    """The ranges of rows that are decoded together; `messages` are for example keys and values."""
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
    """The result of `decode`, which may raise TooManyValues, for messages.

    The error of a message with too many values begins with `prefix`.
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
