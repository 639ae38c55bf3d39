"""Parts of a buffer as an Arrow array, copied without a loop in Python.

It uses an array over the whole buffer whose offsets are the start and end of each part in turn: its
even elements are the parts, its odd ones the bytes between them; then it takes the even ones.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
_EMPTY: Final = pa.py_buffer(b"")


class Laid(NamedTuple):
    """The data and offsets of an array of text or bytes."""

    data: pa.Buffer
    offsets: Numbers  # one more than there are rows; they need not begin with 0


def laid(array: pa.BinaryArray | pa.StringArray) -> Laid:
    """The data and offsets of an array, which may be a slice of a larger one."""
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:  # an array without rows may lack offsets in Arrow
        return Laid(data or _EMPTY, np.zeros(1, np.int32))
    numbers = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return Laid(data or _EMPTY, numbers)


def mask_of(flags: pa.BooleanArray, *, null: bool = False) -> Mask:
    """Flags as a numpy mask; `null` is the value for a null flag."""
    mask: Mask = flags.fill_null(null).to_numpy(zero_copy_only=False)
    return mask


def pieces(data: pa.Buffer, starts: Numbers, ends: Numbers, *, missing: Mask | None = None,
           kind: pa.DataType | None = None) -> pa.Array:
    """The bytes [start, end) of each row; null for rows in `missing`.

    Parts must be in the order of their rows and must not overlap; that includes empty parts.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if count else 0
    both = pa.Array.from_buffers(kind or pa.string(), 2 * count,
                                 [None, pa.py_buffer(offsets), data])
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing))
