"""What holds for every format, checked at each decoding: the contract, and that rows are alone."""

from typing import Any

import pyarrow as pa

from quipu.pipeline.formats.contract import Decoded, Format


def decoded(fmt: Format, messages: list[bytes | None]) -> list[Any]:
    """Per message: its values, the text of its error, or None where there is no message."""
    data = pa.array(messages, pa.binary())
    whole = rows_of(fmt, fmt.decode(data), len(messages))
    padded = pa.array([b'\xff{"', None, *messages, b'x,"y'], pa.binary())
    assert rows_of(fmt, fmt.decode(padded.slice(2, len(messages))), len(messages)) == whole
    for message, row in zip(messages, whole, strict=True):
        alone = fmt.decode(pa.array([message], pa.binary()))
        assert repr(rows_of(fmt, alone, 1)) == repr([row])  # by repr: NaN is itself
    assert rows_of(fmt, fmt.decode(pa.array([], pa.binary())), 0) == []
    return whole


def rows_of(fmt: Format, found: Decoded, count: int) -> list[Any]:
    assert len(found.columns) == len(fmt.columns)
    for column, array in zip(fmt.columns, found.columns, strict=True):
        assert array.type.equals(column.type), (array.type, column.type)
        array.validate(full=True)
        assert len(array) == count
    assert found.errors.type == pa.string()
    assert found.absent.type == pa.bool_()
    assert len(found.errors) == len(found.absent) == count
    assert found.absent.null_count == 0
    columns = [array.to_pylist() for array in found.columns]
    rows = []
    for index in range(count):
        values = tuple(column[index] for column in columns)
        error, absent = found.errors[index].as_py(), found.absent[index].as_py()
        assert not (error and absent)
        if error or absent:
            assert values == (None,) * len(values), (values, error)
        else:
            assert all(column.nullable or value is not None
                       for column, value in zip(fmt.columns, values, strict=True)), values
        rows.append(error or (None if absent else values))
    return rows
