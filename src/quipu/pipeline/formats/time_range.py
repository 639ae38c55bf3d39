"""Makes dates and times outside the years 1 to 9999 errors of their rows.

Avro and Protobuf encode times as numbers, which may be out of that range (PostgreSQL's infinity
is).  Neither Spark nor Python can show such a time, so every query of the row would fail.  The
message becomes an error instead.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.types import MILLIS_MAX, MILLIS_MIN

_DAY_MS = 86_400_000
_TEXT = "a date or time is before the year 1 or after the year 9999"

Mask = npt.NDArray[np.bool_]


def checked(decoded: Decoded, prefix: str) -> Decoded:
    """The same messages, with errors for those with a time out of range."""
    found = [mask for mask in map(_outside, decoded.columns) if mask is not None]
    if not found:
        return decoded
    bad = pa.array(functools.reduce(np.logical_or, found))
    errors = pc.if_else(bad, pa.scalar(f"{prefix}{_TEXT}"), decoded.errors)
    return Decoded(null_where(bad, decoded.columns), errors, decoded.absent)


def _outside(array: pa.Array) -> Mask | None:
    """The rows with a time out of range, at any depth; None if there are none."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _beyond(array.cast(pa.int64()), MILLIS_MIN * 1000, MILLIS_MAX * 1000 + 999)
    if pa.types.is_date32(kind):
        return _beyond(array.cast(pa.int32()), MILLIS_MIN // _DAY_MS, MILLIS_MAX // _DAY_MS)
    if pa.types.is_struct(kind):
        masks = [mask for mask in map(_outside, array.flatten()) if mask is not None]
        return functools.reduce(np.logical_or, masks) if masks else None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _outside_items(array)
    return None


def _outside_items(array: Any) -> Mask | None:  # noqa: ANN401 a list or a map
    offsets = array.offsets.to_numpy()
    items = array.items if pa.types.is_map(array.type) else array.values
    mask = _outside(items.slice(offsets[0], offsets[-1] - offsets[0]))
    if mask is None:
        return None
    found = np.zeros(len(array), np.bool_)
    found[np.repeat(np.arange(len(array)), np.diff(offsets))[mask]] = True
    return found


def _beyond(numbers: pa.Array, low: int, high: int) -> Mask | None:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (bounds["min"] >= low and bounds["max"] <= high):
        return None
    values = pc.fill_null(numbers, 0).to_numpy()
    found: Mask = (values < low) | (values > high)
    return found
