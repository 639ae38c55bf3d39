"""Canonical bytes of rows: equal rows have equal bytes, different rows different ones.

    key_identities(columns)   the bytes of keys, and their slots; short for keys of one column
    encode_rows(columns)      the bytes of any rows

A key of one column is encoded as its own bytes: text and bytes as they are, whole numbers,
booleans, dates and timestamps as eight bytes, little-endian; NULL as no bytes, in a slot of its
own.  Any other key or row is the encodings of its columns, back to back, each of known length:

    numbers     0 or 1 (NULL or not), then 8 bytes: an integer, or a float64 in which -0.0 is 0.0
                and all NaN are one; decimals 16 or 32 bytes
    text, bytes 0 or 1, then the size in 4 bytes, then the bytes
    list, map   0 or 1, then the count in 4 bytes, then the elements
    record      0 or 1, then the fields

Integers of all sizes are encoded alike, as are floats, text and bytes of all kinds, so that rows
keep their identity if a column is widened.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.events import Slot

U8 = npt.NDArray[np.uint8]


def key_identities(columns: Sequence[pa.Array]) -> tuple[pa.BinaryArray, U8]:
    """The identity of each key, and its slot: KEY, or NULL for a key of one column, NULL."""
    if len(columns) == 1:
        plain = _plain(columns[0])
        if plain is not None:
            slots = np.full(len(plain), Slot.KEY, np.uint8)
            if columns[0].null_count:
                slots[columns[0].is_null().to_numpy(zero_copy_only=False)] = Slot.NULL
            return plain, slots
    return encode_rows(columns), np.full(len(columns[0]), Slot.KEY, np.uint8)


def encode_rows(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """The bytes of each row."""
    return _joined([part for column in columns for part in _parts(column)])


def _plain(column: pa.Array) -> pa.BinaryArray | None:
    kind = column.type
    if _is_bytes(kind):
        return column.cast(pa.binary()).fill_null(b"") if column.null_count else \
            column.cast(pa.binary())
    if _is_whole(kind):
        whole = _whole(column)
        if not column.null_count:
            return _fixed(whole.reshape(-1, 1).view(np.uint8))
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(valid * 8)]).astype(np.int32)
        return _binary(offsets, whole[valid].tobytes())
    return None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)
                or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
                or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
                or pa.types.is_fixed_size_binary(kind))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind)
                or pa.types.is_temporal(kind))


def _whole(column: pa.Array) -> npt.NDArray[np.int64]:
    """Whole numbers as int64, zero where null."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    if column.null_count:
        column = column.fill_null(0)
    found = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(found.astype("<i8", casting="unsafe", copy=False))


def _parts(column: pa.Array) -> list[pa.BinaryArray]:
    """Arrays whose elements, joined row by row, are the encodings of a column."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _parts(column.dictionary_decode())
    if isinstance(column, pa.ExtensionArray):
        return _parts(column.storage)
    valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    if pa.types.is_null(kind):
        return [_fixed(valid.reshape(-1, 1))]
    if pa.types.is_struct(kind):
        fields = [part for child in column.flatten() for part in _parts(child)]
        return [_fixed(valid.reshape(-1, 1)), *fields]
    if pa.types.is_floating(kind):
        return [_headed(valid, _floats(column).reshape(-1, 1).view(np.uint8))]
    if pa.types.is_decimal(kind):
        return [_headed(valid, _decimals(column))]
    if _is_whole(kind):
        return [_headed(valid, _whole(column).reshape(-1, 1).view(np.uint8))]
    if _is_bytes(kind):
        data = column.cast(pa.binary()).fill_null(b"")
        return [_counted(valid, pc.binary_length(data)), data]
    if isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray | pa.MapArray):
        return _list_parts(column, valid)
    raise TypeError(f"no canonical bytes for {kind}")


def _list_parts(column: pa.Array, valid: U8) -> list[pa.BinaryArray]:
    if isinstance(column, pa.MapArray):
        entries = pa.list_(pa.struct([column.type.key_field, column.type.item_field]))
        column = column.cast(entries)
    counts = column.value_lengths().fill_null(0)
    elements = _joined(_parts(column.flatten()))
    ends = np.concatenate([[0], np.cumsum(counts.to_numpy(zero_copy_only=False))])
    # the elements of one list are back to back already: only the offsets change
    _, offset_buffer, data = elements.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(elements) + 1, elements.offset * 4)
    return [_counted(valid, counts), _binary(offsets[ends], data)]


def _joined(parts: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, b"")


def _floats(column: pa.Array) -> npt.NDArray[np.float64]:
    found = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    found = found + 0.0  # -0.0 becomes 0.0; also a copy, which may be written to
    found[np.isnan(found)] = np.nan
    little: npt.NDArray[np.float64] = found.astype("<f8", copy=False)
    return little


def _decimals(column: pa.Array) -> U8:
    width = column.type.bit_width // 8
    data = np.frombuffer(column.buffers()[1], np.uint8)
    data = data[column.offset * width:(column.offset + len(column)) * width].reshape(-1, width)
    if column.null_count:
        data = np.where(column.is_valid().to_numpy(zero_copy_only=False)[:, None], data, 0)
    return data.astype(np.uint8, copy=False)


def _headed(valid: U8, payload: U8) -> pa.BinaryArray:
    return _fixed(np.concatenate([valid.reshape(-1, 1), payload], axis=1))


def _counted(valid: U8, counts: pa.Array) -> pa.BinaryArray:
    numbers = np.ascontiguousarray(counts.to_numpy(zero_copy_only=False).astype("<u4"))
    return _headed(valid, numbers.reshape(-1, 1).view(np.uint8))


def _fixed(rows: U8) -> pa.BinaryArray:
    """A binary array from a matrix with one row of bytes for each element."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return _binary(offsets, np.ascontiguousarray(rows))


def _binary(offsets: npt.NDArray[np.integer], data: object) -> pa.BinaryArray:
    if len(offsets) and offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("identities of more than 2 GiB in one batch")
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
