"""Text to typed columns."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.casts import CannotCast, cast_texts, from_base64
from quipu.pipeline.types import TIMESTAMP, TIMESTAMPTZ, sql_name

NUMERIC = pa.decimal128(6, 2)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
RANGE, FORM = "is out of range for type", "invalid input syntax for type"

GOOD: list[tuple[pa.DataType, str, Any]] = [
    (pa.int16(), "-32768", -32768), (pa.int16(), "007", 7), (pa.int64(), "-0", 0),
    (pa.int32(), "5", 5),
    (pa.float32(), "0.5", 0.5), (pa.float64(), "-1e-3", -0.001), (pa.float64(), "1e-400", 0.0),
    (NUMERIC, "1234.5", Decimal("1234.50")), (NUMERIC, "0.005", Decimal("0.01")),
    (NUMERIC, "-0.30000000000000004", Decimal("-0.30")), (NUMERIC, "1e3", Decimal("1000.00")),
    (pa.bool_(), "true", True), (pa.bool_(), "False", False),
    (pa.date32(), "2024-02-29", date(2024, 2, 29)), (pa.date32(), "0001-01-01", date(1, 1, 1)),
    (TIMESTAMP, "2024-02-29 12:00:00.123456", NOON.replace(tzinfo=None)),
    (TIMESTAMP, "2024-02-29T12:00:00.123456789", NOON.replace(tzinfo=None)),
    (TIMESTAMP, "2024-02-29", datetime(2024, 2, 29)),  # noqa: DTZ001 it has no zone
    (TIMESTAMPTZ, "2024-02-29T12:00:00.123456Z", NOON),
    (TIMESTAMPTZ, "2024-02-29T14:00:00.123456+02:00", NOON),
    (TIMESTAMPTZ, "2024-02-29 07:30:00.1234569-0430", NOON),
    (TIMESTAMPTZ, "2024-02-29 12:00:00.123456", NOON),
    (TIMESTAMPTZ, "2024-02-29 12:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
]
BAD: list[tuple[pa.DataType, str, str]] = [
    (pa.int16(), "32768", RANGE), (pa.int64(), "9" * 100_000, RANGE), (pa.int32(), "0x1F", FORM),
    (pa.int32(), "1.5", FORM), (pa.int32(), "", FORM), (pa.int32(), " 1", FORM),
    (pa.float64(), "1e400", RANGE), (pa.float32(), "1e39", RANGE), (pa.float64(), "nan", FORM),
    (NUMERIC, "10000", RANGE), (NUMERIC, "9999.995", RANGE), (NUMERIC, "1e999999999999999", RANGE),
    (pa.bool_(), "yes", FORM), (pa.date32(), "2024-02-30", FORM), (pa.date32(), "0000-01-01", FORM),
    (TIMESTAMP, "2024-02-29T12:00:00Z", FORM), (TIMESTAMP, "2024-02-29T25:00", FORM),
    (TIMESTAMPTZ, "yesterday", FORM), (TIMESTAMPTZ, "0001-01-01T00:00:00+02:00", RANGE),
    (TIMESTAMPTZ, "10000-01-01", FORM), (TIMESTAMPTZ, "2024-02-29T12:00:00 Europe/Paris", FORM),
]


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_text_that_fits(kind: pa.DataType, text: str, value: object) -> None:
    """I2, I10: alone, and next to one that does not fit."""
    for texts in ([text], [text, None, "?"], [None, text, *["1"] * 3000, "9" * 50]):
        cast = cast_texts(pa.array(texts), kind)
        at = texts.index(text)
        assert cast.values[at].as_py() == value
        assert at not in cast.errors
        assert cast.values.type == kind


@pytest.mark.parametrize(("kind", "text", "error"), BAD)
def test_text_that_does_not_fit_says_why(kind: pa.DataType, text: str, error: str) -> None:
    """I15: the error names the type and shows some of the text; neighbours are cast."""
    good = next(good for other, good, _ in GOOD if other == kind)
    for texts in ([text], [good, text, None]):
        cast = cast_texts(pa.array(texts), kind)
        assert list(cast.errors) == [texts.index(text)]
        message = cast.errors[texts.index(text)]
        assert error in message
        assert sql_name(kind) in message
        assert text[:50] in message
        assert len(message) < 150
        assert cast.values.null_count == len(texts) - (good in texts)


def test_bytes_come_in_base64() -> None:
    """I10."""
    cast = from_base64(pa.array(["aGk=", None, "", "a", "a*b="]))
    assert cast.values.to_pylist() == [b"hi", None, b"", None, None]
    assert cast.errors == {3: 'invalid base64: "a"', 4: 'invalid base64: "a*b="'}


def test_some_types_are_not_made_from_text() -> None:
    """I19."""
    with pytest.raises(CannotCast, match="text\\[\\]"):
        cast_texts(pa.array(["x"]), pa.list_(pa.string()))
