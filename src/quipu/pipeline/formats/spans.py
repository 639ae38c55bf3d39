"""Pieces of a buffer as an Arrow array, copied at the speed of memory and without a loop.

The trick: an array over the whole buffer whose offsets are start and end of each piece in turn,
so that its even elements are the pieces and its odd ones what lies between; then take the even.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
_EMPTY: Final = pa.py_buffer(b"")


class Laid(NamedTuple):
    """How an array of text or bytes lies in memory."""

    data: pa.Buffer
    offsets: Numbers  # one more than there are rows; they need not begin with 0


def laid(array: pa.BinaryArray | pa.StringArray) -> Laid:
    """Where the rows of an array lie; slices of larger arrays too."""
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:  # Arrow leaves the offsets of no rows away
        return Laid(data or _EMPTY, np.zeros(1, np.int32))
    numbers = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return Laid(data or _EMPTY, numbers)


def mask_of(flags: pa.BooleanArray, *, null: bool = False) -> Mask:
    """Flags for numpy; `null` is what a null one counts as."""
    mask: Mask = flags.fill_null(null).to_numpy(zero_copy_only=False)
    return mask


def pieces(data: pa.Buffer, starts: Numbers, ends: Numbers, *, missing: Mask | None = None,
           kind: pa.DataType | None = None) -> pa.Array:
    """The bytes [start, end) of each row; null where `missing`.

    Pieces lie in the order of their rows and do not overlap; those of no bytes lie between their
    neighbours too.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if count else 0
    both = pa.Array.from_buffers(kind or pa.string(), 2 * count,
                                 [None, pa.py_buffer(offsets), data])
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing))
