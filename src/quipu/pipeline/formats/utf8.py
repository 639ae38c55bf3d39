"""Checks that bytes are UTF-8: a whole array at once, and row by row only in a bad block."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BAD_UTF8: Final = "Failed to decode UTF-8"
_BLOCK: Final = 1024  # rows that are checked one by one if one of them is bad

Mask = npt.NDArray[np.bool_]


class Texts(NamedTuple):
    """Bytes as text; rows that are not UTF-8 are null."""

    values: pa.StringArray
    bad: Mask | None  # the rows that are not UTF-8; None if there are none


def texts_of(data: pa.BinaryArray) -> Texts:
    """The same bytes as text; it shares their memory if all of them are UTF-8."""
    try:
        return Texts(data.cast(pa.string()), None)
    except pa.ArrowInvalid:
        bad = _bad_rows(data)
    return Texts(pc.if_else(pa.array(bad), pa.scalar(None, pa.binary()), data).cast(pa.string()),
                 bad)


def _bad_rows(data: pa.BinaryArray) -> Mask:
    bad = np.zeros(len(data), np.bool_)
    for start in range(0, len(data), _BLOCK):
        block = data.slice(start, _BLOCK)
        try:
            block.cast(pa.string())
        except pa.ArrowInvalid:
            bad[start : start + len(block)] = [not _is_text(one) for one in block.to_pylist()]
    return bad


def _is_text(data: bytes | None) -> bool:
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
