"""Headers of records as columns: a header is chosen by its name and cast to a type.

The last header of a name counts.  The value is null if the record lacks it, or if it is null.
Types other than bytes are cast from text, by the rules of `casts`.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.casts import Errors, can_cast, cast_texts, error_array
from quipu.pipeline.formats.spans import mask_of
from quipu.pipeline.formats.utf8 import texts_of

_BYTES_SHOWN_MAX = 32


class HeaderColumn(NamedTuple):
    """One value for each record; null if there is no header, or an error."""

    values: pa.Array
    errors: pa.StringArray  # null for a record without an error


def can_be_header(kind: pa.DataType) -> bool:
    """Can a header be a column of this type?"""
    return pa.types.is_binary(kind) or can_cast(kind)


def header_column(headers: pa.ListArray, name: str, kind: pa.DataType) -> HeaderColumn:
    """The header `name` of each record, from the column `headers` of `records.columns`."""
    values = _last_values(headers, name)
    errors: Errors = {}
    if pa.types.is_binary(kind):
        return HeaderColumn(values, error_array(errors, len(values)))
    texts = texts_of(values)
    if texts.bad is not None:
        rows = np.flatnonzero(texts.bad)
        errors = {row: _ill_formed(name, data) for row, data in zip(
            rows.tolist(), values.take(pa.array(rows)).to_pylist(), strict=True)}
    cast = cast_texts(texts.values, kind)
    errors |= {row: f"header '{name}': {error}" for row, error in cast.errors.items()}
    return HeaderColumn(cast.values, error_array(errors, len(values)))


def _last_values(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """The bytes of the last header of this name in each row."""
    entries = headers.values
    found = np.flatnonzero(mask_of(pc.equal(entries.field("key"), name)))
    ends = headers.offsets.to_numpy()
    found = found[(found >= ends[0]) & (found < ends[-1])]  # only those of this slice
    last = np.full(len(headers), -1, np.int64)
    last[np.searchsorted(ends, found, side="right") - 1] = found  # the last one stays
    return entries.field("value").take(pa.array(last, mask=last < 0))


def _ill_formed(name: str, data: bytes) -> str:
    some = ", ".join(f"{byte:x}" for byte in data[:_BYTES_SHOWN_MAX])
    dots = ", …" if len(data) > _BYTES_SHOWN_MAX else ""
    return (f"Found ill-formed byte sequence in header '{name}' that cannot be decoded as valid "
            f"utf-8 (original bytes: [{some}{dots}])")
